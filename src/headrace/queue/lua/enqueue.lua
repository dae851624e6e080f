#!lua
-- enqueue: store new tasks, ready now or later.
--
-- ARGV[1]  {shapes, tasks, whole}
--          shapes  {level, capset, delay_us, max_retries, timeout_us,  the next five, ...}
--          tasks   {id, shape, message, idempotency_key or '',  the next four, ...}
--          whole   {levels, capsets, longest_delay_us, largest_bytes}, or nothing
--          A shape is what tasks have in common, counted from 1. level '' means the queue's default;
--          max_retries and timeout_us of -1 mean the level's own. Both lists are flat, because it takes longer to
--          unpack a list per task than to store the task. `whole` is about all the tasks of an enqueue that takes
--          several calls: each refuses what any of them would refuse, so that nothing of it is stored.
-- Answer   {'ok', now_us, {{index, existing id}, ...}}        the list names idempotent duplicates, 0-based
--          {'unknown_queue'}
--          {'unknown_level', level}                           nothing was written
--          {'too_large', limit}                               nothing was written
--          {'too_late', limit_us}                             nothing was written
--          {'too_many_capability_sets', capset}               nothing was written
--
-- Sending the same call again changes nothing, so a lost answer can be asked for once more: tasks are known by
-- their ids for as long as they exist, and where finished ones do not stay, the call itself is remembered for
-- longer than anybody would resend it. There is no
-- allow-oom flag: with maxmemory reached Redis refuses the script as a whole, before the first write.
local needed = {'for_enqueue'}
--@include base
--@include events
--@include ready
if not is_defined then return answer('unknown_queue') end

-- What every enqueue needs comes in one piece; a level other than the default one is read by itself.
local default_level, default_max_retries, default_timeout_us, max_delay_us, max_payload_bytes, result_retention_us,
  events_max = unpack(config.for_enqueue)
config.events_max = events_max
local function level_settings(name)
  if name == '' or name == default_level then return default_level, default_max_retries, default_timeout_us end
  local level = config['level:' .. name]
  if level then return name, level.max_retries, level.timeout_us end
end

local SHAPE_FIELDS, TASK_FIELDS = 5, 4
local shape_values, tasks, whole = unpack(request)
local levels, capsets, longest_delay_us, largest_bytes
if whole then
  levels, capsets, longest_delay_us, largest_bytes = unpack(whole)
else
  levels, capsets, longest_delay_us, largest_bytes = {}, {}, 0, 0
  for at = 1, #shape_values, SHAPE_FIELDS do
    levels[#levels + 1], capsets[#capsets + 1] = shape_values[at], shape_values[at + 1]
    longest_delay_us = math.max(longest_delay_us, shape_values[at + 2])
  end
  for at = 1, #tasks, TASK_FIELDS do largest_bytes = math.max(largest_bytes, #tasks[at + 2]) end
end
for _, name in ipairs(levels) do
  if not level_settings(name) then return answer('unknown_level', name) end
end
if largest_bytes > max_payload_bytes then return answer('too_large', max_payload_bytes) end
if longest_delay_us > max_delay_us then return answer('too_late', max_delay_us) end

local room_for_capsets
local function has_room_for(capset)
  if not room_for_capsets then
    room_for_capsets = config.max_capability_sets
    for _, line in ipairs(redis.call('SMEMBERS', capsets_key)) do
      if not is_suspects(line) then room_for_capsets = room_for_capsets - 1 end
    end
  end
  if redis.call('SISMEMBER', capsets_key, capset) == 1 then return true end
  room_for_capsets = room_for_capsets - 1
  return room_for_capsets >= 0
end
for _, capset in ipairs(capsets) do
  if capset ~= '' and not has_room_for(capset) then return answer('too_many_capability_sets', capset) end
end

-- A script that fails half-way is not rolled back: every key that will be written is looked at before.
if longest_delay_us > 0 then redis.call('ZCARD', delayed_key) end
redis.call('XLEN', events_key)
redis.call('HLEN', stats_key)
local shapes = {}
for at = 1, #shape_values, SHAPE_FIELDS do
  local name, capset, delay_us, max_retries, timeout_us = unpack(shape_values, at, at + SHAPE_FIELDS - 1)
  local level, level_max_retries, level_timeout_us = level_settings(name)
  redis.call('ZCARD', ready_key(level, capset))
  look_for_tokens(capset)
  shapes[#shapes + 1] = {
    level = level, capset = capset, delay_us = delay_us,
    spec = spec_text(level, max_retries < 0 and level_max_retries or text(max_retries),
      timeout_us < 0 and level_timeout_us or text(timeout_us), now_text, capset),
  }
end

local RESENT_WITHIN_US, RESENT_WITHIN_MS = 60000000, '60000'
local resent = false
if result_retention_us < RESENT_WITHIN_US then
  local ids = {}
  for at = 1, #tasks, TASK_FIELDS do ids[#ids + 1] = tasks[at] end
  local call = redis.sha1hex(table.concat(ids))
  resent = not redis.call('SET', key_of('sent', call), '1', 'PX', RESENT_WITHIN_MS, 'NX')
end

-- Asked once for all; only when some are there already each is asked for.
local task_keys, some_exist = {}, false
for at = 1, #tasks, TASK_FIELDS do task_keys[#task_keys + 1] = task_key(tasks[at]) end
for first = 1, #task_keys, 1000 do
  local found = redis.call('EXISTS', unpack(task_keys, first, math.min(first + 999, #task_keys)))
  some_exist = some_exist or found > 0
end

local function store(id, key, shape, message)
  if shape.delay_us > 0 then
    redis.call('HSET', key, 'msg', message, 'spec', shape.spec, 'state', 'scheduled')
    make_due(id, now_us + shape.delay_us)
  else
    redis.call('HSET', key, 'msg', message, 'spec', shape.spec)
    make_ready(id, shape.level, shape.capset, now_us)
  end
  event(id, 'enqueued', shape.level, 1)
end

local duplicates, enqueued_levels, stored_here = {}, {}, {}
for index, key in ipairs(task_keys) do
  local at = (index - 1) * TASK_FIELDS
  local id, shape, message, idempotency = tasks[at + 1], shapes[tasks[at + 2]], tasks[at + 3], tasks[at + 4]
  local existing = idempotency ~= '' and redis.call('GET', key_of('idempotency', idempotency))
  if existing then
    -- Its own id means that this is the same enqueue again, even if the task has come and gone since.
    if existing ~= id then duplicates[#duplicates + 1] = {index - 1, existing} end
  elseif not resent and not stored_here[id] and not (some_exist and redis.call('EXISTS', key) == 1) then
    store(id, key, shape, message)
    if idempotency ~= '' then
      redis.call('SET', key_of('idempotency', idempotency), id, 'PX', math.ceil(config.idempotency_window_us / 1000))
    end
    stored_here[id] = true
    enqueued_levels[shape.level] = true
  end
end

for level in pairs(enqueued_levels) do redis.call('HSET', stats_key, 'last_enqueue:' .. level, now_text) end
wake_idle_workers()
conclude()
return answer('ok', now_us, duplicates)
