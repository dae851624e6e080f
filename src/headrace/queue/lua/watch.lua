#!lua flags=allow-oom
-- watch: read a task and, while it is unfinished, leave an inbox that is told when it ends.
--
-- ARGV[1]  {id, inbox}       inbox '' only reads
-- Answer   {'ok', {field, value, ...}} | {'not_found'} | {'unknown_queue'}
local needed = {}
--@include base
if not is_defined then return answer('unknown_queue') end
local MAX_WATCHERS = 32
local key = task_key(request.id)
local fields = redis.call('HGETALL', key)
if #fields == 0 then return answer('not_found') end
local task = {}
for i = 1, #fields, 2 do task[fields[i]] = fields[i + 1] end
if not task.state then   -- not stored before the first claim
  fields[#fields + 1] = 'state'
  fields[#fields + 1] = 'queued'
end
local ended = task.state == 'completed' or task.state == 'failed' or task.state == 'cancelled' or task.state == 'dead_letter'
if request.inbox ~= '' and not ended then
  local inboxes, known = {}, false
  for inbox in string.gmatch(task.watchers or '', '%S+') do
    inboxes[#inboxes + 1] = inbox
    known = known or inbox == request.inbox
  end
  if not known then
    inboxes[#inboxes + 1] = request.inbox
    if #inboxes > MAX_WATCHERS then table.remove(inboxes, 1) end
    redis.call('HSET', key, 'watchers', table.concat(inboxes, ' '))
  end
end
for i = 1, #fields, 2 do
  if fields[i] == 'history' then fields[i + 1] = cmsgpack.unpack(fields[i + 1]) end
end
return answer('ok', fields)
