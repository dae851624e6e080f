#!lua flags=allow-oom
-- claim: repair a little, then lease the next tasks to a worker.
--
-- ARGV[1]  {worker, lane, want, number, randoms = {0..1, ...}, random, repair_limit}
--          `number` rises with each new claim of a worker's lane; a worker that keeps several claims under way
--          gives each a lane. The same number again means that the answer was lost on the way: it gets the
--          same tasks again instead of stranding them until their lease ends.
-- Answer   {status, now_us, next_due_us or 0, tasks, capsets, next_expiry_us or 0}
--          status  'ok' | 'paused' | 'draining' | 'unregistered' | 'unknown_queue'
--          tasks   {{id, message, token, retries, timeout_us, level, created_us}, ...}
--          capsets the capability sets this worker covers: what it should block on when it found nothing
--          next_due, next_expiry: when a delayed task becomes due, and when a lease ends unless it is renewed
--@include base
--@include events
--@include ready
--@include attempts
--@include repair
if not config then return answer('unknown_queue') end

local own_key = worker_key(request.worker)
local number_field, claimed_field = 'number:' .. request.lane, 'claimed:' .. request.lane
local own = redis.call('HMGET', own_key, 'state', 'caps', number_field, claimed_field)
local state, capabilities, last_number, last_claimed = own[1], own[2], tonumber(own[3]), own[4]
if not state or state == 'dead' then return answer('unregistered', now_us) end
check_types()

forward_due(request.repair_limit)
reclaim_expired(request.repair_limit)
update_released_workers()
write_additions()   -- what the repair made ready can be claimed at once

local has = {}
for capability in string.gmatch(capabilities or '', '[^,]+') do has[capability] = true end
local function covers(capset)
  for capability in string.gmatch(capset, '[^,]+') do
    if not has[capability] then return false end
  end
  return true
end
local capsets = {}
for _, capset in ipairs(redis.call('SMEMBERS', capsets_key)) do
  if covers(capset) then capsets[#capsets + 1] = capset end
end

local CLAIM_FIELDS = {'msg', 'token', 'retries', 'timeout_us', 'created_us'}
local tasks, claimed_ids = {}, {}

local function hand_out(id, values, token, level)
  local retries = tonumber(values[3] or 0)
  local timeout_us = attempt_timeout_us(tonumber(values[4]), retries)
  tasks[#tasks + 1] = {id, values[1], token, retries, timeout_us, level, tonumber(values[5])}
  claimed_ids[#claimed_ids + 1] = id
  return retries, timeout_us
end

local function finish_claim(status)
  wake_idle_workers()
  conclude()
  local next_due = redis.call('ZRANGE', delayed_key, 0, 0, 'WITHSCORES')[2]
  local next_expiry = redis.call('ZRANGE', leases_key, 0, 0, 'WITHSCORES')[2]
  return answer(status, now_us, tonumber(next_due or 0), tasks, capsets, tonumber(next_expiry or 0))
end

if last_number == request.number then
  for _, id in ipairs(cmsgpack.unpack(last_claimed)) do
    local lease = redis.call('HMGET', task_key(id), 'state', 'worker', 'promoted', 'level')
    if lease[1] == 'executing' and lease[2] == request.worker then
      local values = redis.call('HMGET', task_key(id), unpack(CLAIM_FIELDS))
      hand_out(id, values, tonumber(values[2]), lease[3] or lease[4])
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
local want = request.want
local function open_level(level)
  local windows = {}
  for _, capset in ipairs(capsets) do
    local key = ready_key(level.name, capset)
    local entries = redis.call('ZRANGE', key, 0, want - 1, 'WITHSCORES')
    if #entries > 0 then windows[#windows + 1] = {key = key, entries = entries, at = 1} end
  end
  return windows
end

local opened = {}
-- The window whose next task is the oldest of the level, or nil when the level is empty.
local function oldest_window(index)
  if not opened[index] then opened[index] = want > 0 and open_level(config.levels[index]) or {} end
  local best, best_score
  for _, window in ipairs(opened[index]) do
    local id, score = window.entries[window.at], tonumber(window.entries[window.at + 1])
    if id and (not best or score < best_score or (score == best_score and id < best.entries[best.at])) then
      best, best_score = window, score
    end
  end
  return best, best_score
end

local function boost(waited_us)
  local factor = 1
  for _, step in ipairs(config.boosts) do
    if waited_us >= step.after_us then factor = step.factor end
  end
  return factor
end

local function pick_strict()
  for index = 1, #config.levels do
    local window = oldest_window(index)
    if window then return index, window end
  end
end

local function pick_weighted(random)
  local candidates, total = {}, 0
  for index, level in ipairs(config.levels) do
    local window, oldest_us = oldest_window(index)
    if window then
      local weight = level.weight * boost(now_us - oldest_us)
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
  if config.selection == 'weighted' then index, window = pick_weighted(request.randoms[i]) else index, window = pick_strict() end
  if not window then break end
  local id = window.entries[window.at]
  window.at = window.at + 2
  local key = task_key(id)
  local values = redis.call('HMGET', key, unpack(CLAIM_FIELDS))
  if values[1] then
    local level = config.levels[index].name
    local token = tonumber(values[2] or 0) + 1
    local retries, timeout_us = hand_out(id, values, token, level)
    redis.call('HSET', key, 'state', 'executing', 'worker', request.worker, 'token', text(token),
      'started_us', text(now_us))
    add_later(leases_key, now_us + math.min(config.lease_us, timeout_us), id)
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
    if taken > 0 then redis.call('ZREMRANGEBYRANK', window.key, 0, taken - 1) end
  end
end
for level in pairs(dequeued_levels) do redis.call('HSET', stats_key, 'last_dequeue:' .. level, now_us) end
if #tasks > 0 then
  redis.call('HINCRBY', own_key, 'load', #tasks)
  redis.call('HSET', own_key, number_field, request.number, claimed_field, cmsgpack.pack(claimed_ids))
end
if #tasks + dangling < want then
  -- Nothing is left for this worker's sets: tokens that still lie there would only wake workers for nothing,
  -- and this worker learns the next due time from the answer.
  for _, capset in ipairs(capsets) do
    redis.call('DEL', wake_key(capset))
    made_ready[capset] = nil
  end
  sooner_due = false
elseif dangling > 0 then
  wake('', 1)   -- it got less than it asked for and will sleep, though there may be more
end
return finish_claim('ok')
