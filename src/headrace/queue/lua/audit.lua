#!lua flags=allow-oom
-- audit: look through some of the queue's tasks for orphans, which are said to be executing and have no lease.
--
-- ARGV[1]  {cursor, count}      cursor '0' begins; count is how many keys of the server are looked at, roughly
-- Answer   {'ok', cursor, orphans}   cursor '0': all have been looked at
--          {'unknown_queue'}
--
-- No transition of ours leaves an orphan behind; whoever tampers with the keys does. An orphan gets a lease that has
-- run out already, so that what follows is the rule for every other lost worker.
local needed = {}
--@include base
--@include types
--@include events
if not is_defined then return answer('unknown_queue') end
check_types()

local task_prefix = prefix .. 'task:'
local found = redis.call('SCAN', request.cursor, 'MATCH', task_prefix .. '*', 'COUNT', request.count)
local orphans = 0
for _, key in ipairs(found[2]) do
  if redis.call('TYPE', key)['ok'] == 'hash' and redis.call('HGET', key, 'state') == 'executing' then
    local id = string.sub(key, #task_prefix + 1)
    if not redis.call('ZSCORE', leases_key, id) then
      redis.call('ZADD', leases_key, now_text, id)
      orphans = orphans + 1
    end
  end
end
if orphans > 0 then count('orphans', orphans) end
conclude()
return answer('ok', found[1], orphans)
