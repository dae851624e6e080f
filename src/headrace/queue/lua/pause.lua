#!lua flags=allow-oom
-- pause: stop or resume handing out tasks. Enqueue, settle and repair go on.
--
-- ARGV[1]  {paused}
-- Answer   {'ok'} | {'unknown_queue'}
local needed = {}
--@include base
--@include types
--@include ready
if not is_defined then return answer('unknown_queue') end
check_types()
redis.call('HSET', config_key, 'paused', request.paused and '1' or '0')
if not request.paused then wake_everyone() end
return answer('ok')
