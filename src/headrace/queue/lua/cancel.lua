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
--@include base
--@include events
--@include ready
--@include attempts
if not config then return answer('unknown_queue') end
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
      redis.call('ZREM', ready_key(task.promoted or task.level, task.caps), id)
    else
      redis.call('ZREM', delayed_key, id)
    end
    finish(task, 'cancelled')
    statuses[index] = 'cancelled'
  else
    statuses[index] = task.state
  end
end
conclude()
return answer('ok', statuses)
