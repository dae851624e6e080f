#!lua flags=allow-oom
-- cancel: waiting tasks end at once; running ones are asked to stop.
--
-- ARGV[1]  {ids = {id, ...}}
-- Answer   {'ok', {status, ...}}
--          status 'cancelled'   it was waiting and is now cancelled, or had been cancelled before
--                 'cancelling'  it is running; its worker hears of it at once, or with the next heartbeat
--                 'completed' | 'failed' | 'dead_letter'   too late; nothing was changed
--                 'not_found'
--          {'unknown_queue'}
local needed = {'result_retention_us', 'events_max'}
--@include base
--@include types
--@include spec
--@include events
--@include ready
--@include task
--@include attempts
if not is_defined then return answer('unknown_queue') end
check_types()

local statuses = {}
for index, id in ipairs(request.ids) do
  local task = load_task(id)
  if not task then
    statuses[index] = 'not_found'
  elseif task.state == 'executing' then
    redis.call('HSET', task_key(id), 'cancel', '1')
    redis.call('PUBLISH', prefix .. 'cancel', id)
    statuses[index] = 'cancelling'
  elseif task.state == 'queued' or task.state == 'scheduled' or task.state == 'retrying' then
    if task.state == 'queued' then
      -- In one line or the other: what makes a suspect may have been configured anew since it joined its line.
      redis.call('ZREM', ready_key(task.promoted or task.level, task.capset), id)
      redis.call('ZREM', ready_key(task.promoted or task.level, task.capset .. SUSPECT), id)
    else
      redis.call('ZREM', delayed_key, id)
    end
    finish(task, 'cancelled')
    statuses[index] = 'cancelled'
  else
    statuses[index] = task.state
  end
end
delete_doomed()
conclude()
return answer('ok', statuses)
