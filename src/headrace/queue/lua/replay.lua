#!lua
-- replay: bring dead letters back to life, with their retries and crashes reset.
--
-- ARGV[1]  {ids = {id, ...}} or {ids = {}, limit}: without ids, the oldest `limit` dead letters
-- Answer   {'ok', replayed ids, {{id, state or 'not_found'}, ...}}   the second list was not dead and is untouched
--          {'unknown_queue'}
--
-- A replayed task queues up now, at its original level; the history of its attempts stays with it.
local needed = {'level_names', 'events_max'}
--@include base
--@include types
--@include spec
--@include events
--@include ready
--@include task
--@include attempts
if not is_defined then return answer('unknown_queue') end
check_types()

local ids = request.ids
if #ids == 0 then ids = redis.call('ZRANGE', dead_key, 0, request.limit - 1) end
local replayed, refused = {}, {}
for _, id in ipairs(ids) do
  local task = load_task(id)
  if task and task.state == 'dead_letter' then
    local key, level = task_key(id), settle_on_level(task)
    redis.call('HDEL', key, 'worker', 'started_us', 'finished_us', 'promoted', 'retries', 'crashes', 'reason', 'error', 'cancel')
    redis.call('HSET', key, 'state', 'queued', 'place_us', text(now_us))
    make_ready(id, level, task.capset, now_us)
    event(id, 'replayed', level, 1)
    replayed[#replayed + 1] = id
  else
    refused[#refused + 1] = {id, task and task.state or 'not_found'}
  end
end
remove_all(dead_key, replayed)
wake_idle_workers()
conclude()
return answer('ok', replayed, refused)
