#!lua flags=allow-oom
-- claim: repair a little, then lease the next tasks to a worker.
--
-- ARGV[1]  {worker, lane, want, number, random = 0..1, randoms = {0..1, ...} or nothing, repair_limit}
--          `number` rises with each new claim of a worker's lane; a worker that keeps several claims under way
--          gives each a lane. The same number again means that the answer was lost on the way: it gets the
--          same tasks again instead of stranding them until their lease ends. `randoms` has one for each task that
--          is wanted; only weighted selection needs them.
-- Answer   {status, now_us, next_due_us or 0, tasks, lines, next_expiry_us or 0}; what follows the tasks is there
--          when the claim came up short and its worker will sleep
--          status  'ok' | 'paused' | 'draining' | 'unregistered' | 'unknown_queue'
--          tasks   {{id, message, token, retries, timeout_s, level, created_s, waited_s}, ...}
--          waited  from the task's place in its line to the claim: a retry keeps the place it had
--          lines   of the capability sets this worker covers: what it should block on when it found nothing
--          next_due, next_expiry: when a delayed task becomes due, and when a lease ends unless it is renewed
local needed = {'for_claim'}
--@include base
--@include types
--@include spec
--@include events
--@include ready
--@include task
if not is_defined then return answer('unknown_queue') end
config.level_names, config.selection, config.lease_us, config.timeout_factor, config.max_duration_us,
  config.events_max = unpack(config.for_claim)

local own_key = key_of('worker', request.worker)
local number_field, claimed_field = 'number:' .. request.lane, 'claimed:' .. request.lane
local own = redis.call('HMGET', own_key, 'state', 'caps', number_field, 'suspect', 'load')
local state, capabilities, last_number = own[1], own[2], tonumber(own[3])
local has_suspect, load = own[4], tonumber(own[5] or 0)
if not state or state == 'dead' then return answer('unregistered', now_us) end
check_types()

local function earliest_us(key) return tonumber(redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]) end
local next_due_us, next_expiry_us = earliest_us(delayed_key), earliest_us(leases_key)
-- Most claims find nothing to repair and are spared what it takes.
if (next_due_us and next_due_us <= now_us) or (next_expiry_us and next_expiry_us <= now_us) then
  --@include attempts
  --@include repair
  forward_due(request.repair_limit)
  reclaim_expired(request.repair_limit)
  update_released_workers()
  delete_doomed()
  write_additions()   -- what the repair made ready can be claimed at once
  next_due_us, next_expiry_us = earliest_us(delayed_key), earliest_us(leases_key)
  own = redis.call('HMGET', own_key, 'suspect', 'load')   -- its own leases may have ended, too
  has_suspect, load = own[1], tonumber(own[2] or 0)
end

local has = {}
for capability in string.gmatch(capabilities or '', '[^,]+') do has[capability] = true end
local function covers(line)
  for capability in string.gmatch(line, '[^,!]+') do
    if not has[capability] then return false end
  end
  return not (has_suspect and is_suspects(line))
end
local function covered(lines)
  local found = {}
  for _, line in ipairs(lines) do
    if covers(line) then found[#found + 1] = line end
  end
  return found
end
local lines = covered(redis.call('SMEMBERS', capsets_key))

local want = request.want
local tasks, claimed_ids = {}, {}

local function hand_out(id, message, spec, token, retries, level, waited_us)
  local timeout_us = attempt_timeout_us(spec.timeout_us, retries)
  tasks[#tasks + 1] = {id, message, token, retries, timeout_us / 1000000, level, spec.created_us / 1000000,
    waited_us / 1000000}
  claimed_ids[#claimed_ids + 1] = id
  return timeout_us
end

local function finish_claim(status)
  wake_idle_workers()
  conclude()
  if #tasks > 0 and #tasks >= want then return answer(status, now_us, 0, tasks) end   -- it will not sleep
  return answer(status, now_us, next_due_us or 0, tasks, covered(lines), next_expiry_us or 0)
end

if last_number == request.number then
  for _, id in ipairs(cmsgpack.unpack(redis.call('HGET', own_key, claimed_field))) do
    local task = load_task(id)
    if task and task.state == 'executing' and task.worker == request.worker then
      local message = redis.call('HGET', task_key(id), 'msg')
      hand_out(id, message, task.spec, task.token, task.retries, task.promoted or task.level,
        task.started_us - task.place_us)
    end
  end
  return finish_claim('ok')
end
if last_number and request.number < last_number then return finish_claim('ok') end   -- overtaken on its way
if state == 'draining' then
  redis.call('HSET', own_key, 'parked', '1')
  return finish_claim('draining')
end
if paused then return finish_claim('paused') end

-- Selection. Each level is a merge of the sorted sets the worker covers; a window holds the oldest of one set.
local function open_level(name)
  local windows = {}
  for _, line in ipairs(lines) do
    local key, is_suspect = ready_key(name, line), is_suspects(line)
    local entries = redis.call('ZRANGE', key, '0', is_suspect and '0' or text(want - 1), 'WITHSCORES')
    if #entries > 0 then windows[#windows + 1] = {key = key, entries = entries, at = 1, is_suspect = is_suspect} end
  end
  return windows
end

local function next_id(window) return window.entries[window.at] end
local function next_place_us(window) return tonumber(window.entries[window.at + 1]) end

local opened = {}
-- The window whose next task is the oldest of the level, or nil when the level is empty.
local function oldest_window(index)
  local windows = opened[index]
  if not windows then
    windows = open_level(config.level_names[index])
    opened[index] = windows
  end
  if #windows == 1 and not windows[1].is_suspect then return next_id(windows[1]) and windows[1] end
  local best, best_us
  for _, window in ipairs(windows) do
    local id, place_us = next_id(window), next_place_us(window)
    if id and not (window.is_suspect and has_suspect)
      and (not best or place_us < best_us or (place_us == best_us and id < next_id(best))) then
      best, best_us = window, place_us
    end
  end
  return best
end

local function boost(waited_us)
  local factor = 1
  for _, step in ipairs(config.boosts) do
    if waited_us >= step.after_us then factor = step.factor end
  end
  return factor
end

local top_level = 1   -- the levels above it are empty, and stay so for as long as the script runs
local function pick_strict()
  while top_level <= #config.level_names do
    local window = oldest_window(top_level)
    if window then return top_level, window end
    top_level = top_level + 1
  end
end

local function pick_weighted(random)
  local candidates, total = {}, 0
  for index, name in ipairs(config.level_names) do
    local window = oldest_window(index)
    if window then
      local weight = config['level:' .. name].weight * boost(now_us - next_place_us(window))
      total = total + weight
      candidates[#candidates + 1] = {index, window, weight}
    end
  end
  local point = random * total
  for position, candidate in ipairs(candidates) do
    point = point - candidate[3]
    if point < 0 or position == #candidates then return candidate[1], candidate[2] end
  end
end

local dequeued_levels, dangling = {}, 0
for i = 1, want do
  local index, window
  if config.selection == 'weighted' then
    -- Without numbers of its own this claim was sent before the queue became a weighted one.
    index, window = pick_weighted(request.randoms and request.randoms[i] or request.random)
  else
    index, window = pick_strict()
  end
  if not window then break end
  local id, waited_us = next_id(window), now_us - next_place_us(window)
  window.at = window.at + 2
  local key = task_key(id)
  local message, spec_of, token, retries = unpack(redis.call('HMGET', key, 'msg', 'spec', 'token', 'retries'))
  if spec_of then
    local level = config.level_names[index]
    token, retries = tonumber(token or 0) + 1, tonumber(retries or 0)
    local timeout_us = hand_out(id, message, read_spec(spec_of), token, retries, level, waited_us)
    redis.call('HSET', key, 'state', 'executing', 'worker', request.worker, 'token', text(token),
      'started_us', now_text)
    local expiry_us = now_us + math.min(config.lease_us, timeout_us)
    add_later(leases_key, expiry_us, id)
    if not next_expiry_us or expiry_us < next_expiry_us then next_expiry_us = expiry_us end
    if window.is_suspect then
      has_suspect = true
      redis.call('HSET', own_key, 'suspect', id)
    end
    dequeued_levels[level] = true
    event(id, 'claimed', level, retries + 1, request.worker)
  else
    dangling = dangling + 1   -- an id whose task was deleted by hand: drop it
    count('dangling')
  end
end

for _, windows in pairs(opened) do
  for _, window in ipairs(windows) do
    local taken = (window.at - 1) / 2
    if taken > 0 then redis.call('ZREMRANGEBYRANK', window.key, '0', text(taken - 1)) end
  end
end
for level in pairs(dequeued_levels) do redis.call('HSET', stats_key, 'last_dequeue:' .. level, now_text) end
if #tasks > 0 then
  redis.call('HSET', own_key, 'load', text(load + #tasks), number_field, text(request.number), claimed_field,
    cmsgpack.pack(claimed_ids))
end
if #tasks + dangling < want then
  -- Nothing is left in this worker's lines: tokens that still lie there would only wake workers for nothing,
  -- and this worker learns the next due time from the answer.
  for _, line in ipairs(covered(lines)) do
    redis.call('DEL', key_of('wake', line))
    made_ready[line] = nil
  end
  sooner_due = false
elseif dangling > 0 then
  wake('', 1)   -- it got less than it asked for and will sleep, though there may be more
end
return finish_claim('ok')
