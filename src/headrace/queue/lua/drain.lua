#!lua flags=allow-oom
-- drain: stop workers from claiming, or let them claim again; atomic with their claims.
--
-- ARGV[1]  {workers = {id, ...}, action = 'drain' | 'undrain', idle_us, force, idle_since_us = {us, ...} or nothing,
--           deployment, hold_us}
--          A worker is drained when it holds no lease and has been idle for idle_us; with force also when busy
--          (it then finishes what it has). With idle_since_us each must have been idle since that very moment:
--          whoever decided by another clock knows that nothing has happened since.
--          deployment, hold_us: workers of this Deployment that register within this time are draining from the
--          beginning; 0 lets them in again.
-- Answer   {'ok', {status, ...}}
--          status 'draining' | 'active' | 'busy' | 'not_idle_long_enough' | 'dead' | 'not_found'
--          {'unknown_queue'}
local needed = {}
--@include base
if not is_defined then return answer('unknown_queue') end

if request.deployment then
  local field = 'held:' .. request.deployment
  if request.hold_us > 0 then
    redis.call('HSET', config_key, field, text(now_us + request.hold_us))
  else
    redis.call('HDEL', config_key, field)
  end
end

local function drain(key, load, idle_since_us, expected_us)
  if not request.force then
    if load > 0 then return 'busy' end
    if expected_us and expected_us ~= idle_since_us then return 'not_idle_long_enough' end
    if now_us - idle_since_us < request.idle_us then return 'not_idle_long_enough' end
  end
  redis.call('HSET', key, 'state', 'draining')
  return 'draining'
end

local statuses = {}
for index, worker in ipairs(request.workers) do
  local key = key_of('worker', worker)
  local record = redis.call('HMGET', key, 'state', 'load', 'idle_since_us')
  if not record[1] then
    statuses[index] = 'not_found'
  elseif record[1] == 'dead' then
    statuses[index] = 'dead'
  else
    if request.action == 'undrain' then
      redis.call('HSET', key, 'state', 'active')
      redis.call('HDEL', key, 'parked')
      statuses[index] = 'active'
    else
      statuses[index] = drain(key, tonumber(record[2]), tonumber(record[3]),
        request.idle_since_us and request.idle_since_us[index])
    end
    local changed = statuses[index] == 'active' or statuses[index] == 'draining'
    -- Tell the worker now; it would otherwise learn it from its next claim or heartbeat.
    if changed and redis.call('LLEN', key_of('wake-worker', worker)) == 0 then
      redis.call('RPUSH', key_of('wake-worker', worker), '1')
    end
  end
end
return answer('ok', statuses)
