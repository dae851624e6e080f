-- Reading a task, and deleting it.

-- Tasks that end in this call and are not kept. They are deleted together when the script concludes; until then
-- nothing may take them for alive.
local doomed, doomed_keys = {}, {}
local function delete_later(id)
  doomed[id] = true
  doomed_keys[#doomed_keys + 1] = task_key(id)
end

local function delete_doomed()
  for first = 1, #doomed_keys, 1000 do
    redis.call('DEL', unpack(doomed_keys, first, math.min(first + 999, #doomed_keys)))
  end
end

-- A task as one table. Its state is not stored before the first claim: until then it is queued.
local function load_task(id)
  if doomed[id] then return nil end
  local v = redis.call('HMGET', task_key(id), 'spec', 'state', 'token', 'worker', 'started_us', 'promoted', 'retries',
    'place_us', 'crashes', 'cancel', 'watchers')
  if not v[1] then return nil end
  local spec = read_spec(v[1])
  return {
    id = id, spec = spec, level = spec.level, capset = spec.capset, max_retries = spec.max_retries,
    timeout_us = spec.timeout_us, state = v[2] or 'queued', token = tonumber(v[3] or 0), worker = v[4] or nil,
    started_us = tonumber(v[5] or 0), promoted = v[6] or nil, retries = tonumber(v[7] or 0),
    place_us = tonumber(v[8] or spec.created_us), crashes = tonumber(v[9] or 0), cancel = v[10] or nil,
    watchers = v[11] or nil,
  }
end
