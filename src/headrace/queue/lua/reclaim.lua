#!lua flags=allow-oom
-- reclaim: take back expired leases and timed-out attempts, and declare silent workers dead.
--
-- ARGV[1]  {limit, random}
-- Answer   {'ok', reclaimed, dead workers}   reclaimed below `limit` means that none is left
--          {'unknown_queue'}
--@include base
--@include events
--@include ready
--@include attempts
--@include repair
if not config then return answer('unknown_queue') end
check_types()
local reclaimed = reclaim_expired(request.limit)
update_released_workers()

local silent = redis.call('ZRANGEBYSCORE', workers_key, '-inf', now_us - config.worker_dead_after_us, 'LIMIT', 0, request.limit)
for _, worker in ipairs(silent) do
  redis.call('HSET', worker_key(worker), 'state', 'dead')
  redis.call('ZADD', dead_workers_key, now_us, worker)
  count('dead_workers')
end
remove_all(workers_key, silent)
wake_idle_workers()
conclude()
return answer('ok', reclaimed, silent)
