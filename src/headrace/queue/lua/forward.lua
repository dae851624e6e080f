#!lua flags=allow-oom
-- forward: make due delayed tasks ready. Claims do the same in passing; this is for whoever watches the queue.
--
-- ARGV[1]  {limit}
-- Answer   {'ok', forwarded}      fewer than `limit` means that none is left
--          {'unknown_queue'}
--@include base
--@include events
--@include ready
--@include attempts
--@include repair
if not config then return answer('unknown_queue') end
check_types()
local forwarded = forward_due(request.limit)
wake_idle_workers()
conclude()
return answer('ok', forwarded)
