#!lua flags=allow-oom
-- wipe: delete a queue with everything in it, some keys at a time.
--
-- ARGV[1]  {cursor, count}      cursor '0' begins; count is how many keys of the server are looked at, roughly
-- Answer   {'ok', cursor, deleted}   cursor '0': nothing is left
--
-- The configuration goes first: from then on nobody can enqueue or claim.
local needed = {}
--@include base
local deleted = redis.call('DEL', config_key)
local found = redis.call('SCAN', request.cursor, 'MATCH', prefix .. '*', 'COUNT', request.count)
for _, key in ipairs(found[2]) do deleted = deleted + redis.call('UNLINK', key) end
return answer('ok', found[1], deleted)
