#!lua flags=allow-oom
-- wipe: delete a queue with everything in it, some keys at a time.
--
-- ARGV[1]  {cursor, count, holder}   cursor '0' begins; count is how many keys of the server are looked at, roughly;
--          holder, if not empty, is the only one for whom the queue may be wiped
-- Answer   {'ok', cursor, deleted}   cursor '0': nothing is left
--          {'held', holder}          somebody else holds it, or nobody; nothing was changed
--
-- From the first call on the queue is not defined, so nobody can enqueue or claim. What remains of its configuration
-- goes last: whoever is interrupted can be told from a stranger when he comes again.
local needed = {}
--@include base
if request.holder ~= '' then
  if redis.call('EXISTS', config_key) == 0 then return answer('ok', '0', 0) end
  local holder = redis.call('HGET', config_key, 'holder') or ''
  if holder ~= request.holder then return answer('held', holder) end
end
redis.call('HDEL', config_key, 'generation')
local found = redis.call('SCAN', request.cursor, 'MATCH', prefix .. '*', 'COUNT', request.count)
local deleted = 0
for _, key in ipairs(found[2]) do
  if key ~= config_key then deleted = deleted + redis.call('UNLINK', key) end
end
if found[1] == '0' then deleted = deleted + redis.call('DEL', config_key) end
return answer('ok', found[1], deleted)
