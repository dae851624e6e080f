#!lua flags=allow-oom
-- release: an operator lets go of a queue. Its tasks stay, and its configuration is the app's own to change again.
--
-- ARGV[1]  {holder}     only who holds the queue can release it
-- Answer   {'ok'} | {'held', holder} | {'unknown_queue'}
local needed = {}
--@include base
if not is_defined then return answer('unknown_queue') end
local holder = redis.call('HGET', config_key, 'holder')
if holder and holder ~= request.holder then return answer('held', holder) end
redis.call('HDEL', config_key, 'holder', 'holder_seen_us', 'epoch')
redis.call('HSET', config_key, 'owner', 'app', 'generation', 0)
return answer('ok')
