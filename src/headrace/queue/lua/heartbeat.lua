#!lua flags=allow-oom
-- heartbeat: a worker says that it lives and renews the leases it still holds.
--
-- ARGV[1]  {worker, status = 'active' | 'draining' | 'stopped', info = {field, value, ...},
--           held = {{id, token}, ...}, progress = {{id, token, json}, ...}}
--          'stopped' removes the worker's record: it has handed everything back. If it has not, it is kept
--          like that of a dead worker until its leases are taken back, so that its load stays true.
-- Answer   {'ok', now_us, draining, lost ids, cancelled ids}
--          draining  true when somebody asked this worker to drain
--          lost      leases that are no longer this worker's; it must stop working on them
--          cancelled tasks whose cancellation was asked for; the message that said so may have been lost
--          {'unknown_queue'}
local needed = {'lease_us', 'timeout_factor', 'max_duration_us'}
--@include base
--@include spec
if not is_defined then return answer('unknown_queue') end
redis.call('ZCARD', leases_key)
redis.call('ZCARD', workers_key)
redis.call('ZCARD', dead_workers_key)

local INFO_HOST = 8   -- where the host's name is among the fields and values of `info`
local key = key_of('worker', request.worker)
local state = redis.call('HGET', key, 'state')

local lost, cancelled = {}, {}
for _, lease in ipairs(request.held) do
  local id, token = lease[1], lease[2]
  local task = redis.call('HMGET', task_key(id), 'state', 'token', 'started_us', 'spec', 'retries', 'cancel')
  if task[1] == 'executing' and tonumber(task[2]) == token then
    -- A lease never outlives the attempt's timeout, however faithfully it is renewed.
    local timeout_us = attempt_timeout_us(read_spec(task[4]).timeout_us, tonumber(task[5] or 0))
    redis.call('ZADD', leases_key, 'XX', math.min(now_us + config.lease_us, tonumber(task[3]) + timeout_us), id)
    if task[6] then cancelled[#cancelled + 1] = id end
  else
    lost[#lost + 1] = id
  end
end
for _, report in ipairs(request.progress) do
  local task = redis.call('HMGET', task_key(report[1]), 'state', 'token')
  if task[1] == 'executing' and tonumber(task[2]) == report[2] then
    redis.call('HSET', task_key(report[1]), 'progress', report[3])
  end
end

if request.status == 'stopped' then
  redis.call('DEL', key_of('wake-worker', request.worker))
  redis.call('ZREM', workers_key, request.worker)
  if tonumber(redis.call('HGET', key, 'load') or 0) > 0 then
    redis.call('HSET', key, 'state', 'dead')
    redis.call('ZADD', dead_workers_key, 'NX', now_us, request.worker)
  else
    redis.call('DEL', key)
    redis.call('ZREM', dead_workers_key, request.worker)
  end
  return answer('ok', now_us, true, lost, cancelled)
end

local draining = state == 'draining' or request.status == 'draining'
if not state then
  redis.call('HSET', key, 'load', 0, 'idle_since_us', now_us, 'registered_us', now_us)
  -- While pods are taken away, one that takes the place of another must not take on tasks: it may be the next to go.
  local deployment = string.match(request.info[INFO_HOST] or '', '^(.+)%-[^-]+%-[^-]+$')
  local held_until_us = deployment and redis.call('HGET', config_key, 'held:' .. deployment)
  if held_until_us and now_us < tonumber(held_until_us) then draining = true end
end
redis.call('HSET', key, 'state', draining and 'draining' or 'active', 'heartbeat_us', now_us, unpack(request.info))
if not draining then redis.call('HDEL', key, 'parked') end   -- from a drain that its death has ended
redis.call('ZADD', workers_key, now_us, request.worker)
redis.call('ZREM', dead_workers_key, request.worker)
return answer('ok', now_us, draining, lost, cancelled)
