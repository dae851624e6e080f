#!lua flags=allow-oom
-- reclaim: take back expired leases and timed-out attempts, and declare silent workers dead.
--
-- ARGV[1]  {limit, random}
-- Answer   {'ok', reclaimed, dead workers}   reclaimed below `limit` means that none is left
--          {'unknown_queue'}
local needed = {'worker_dead_after_us'}
--@include base
--@include types
--@include spec
--@include events
--@include ready
--@include task
--@include attempts
--@include repair
if not is_defined then return answer('unknown_queue') end
check_types()
local reclaimed = reclaim_expired(request.limit)
update_released_workers()

local silent = redis.call('ZRANGEBYSCORE', workers_key, '-inf', now_us - config.worker_dead_after_us, 'LIMIT', 0, request.limit)
for _, worker in ipairs(silent) do
  redis.call('HSET', key_of('worker', worker), 'state', 'dead')
  redis.call('ZADD', dead_workers_key, now_us, worker)
  count('dead_workers')
end
remove_all(workers_key, silent)
wake_idle_workers()
delete_doomed()
conclude()
return answer('ok', reclaimed, silent)
