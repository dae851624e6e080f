#!lua flags=allow-oom
-- forward: make due delayed tasks ready. Claims do the same in passing; this is for whoever watches the queue.
--
-- ARGV[1]  {limit}
-- Answer   {'ok', forwarded}      fewer than `limit` means that none is left
--          {'unknown_queue'}
local needed = {'level_names', 'events_max'}
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
local forwarded = forward_due(request.limit)
wake_idle_workers()
conclude()
return answer('ok', forwarded)
