#!lua flags=allow-oom
-- purge: delete what has outlived its retention, at most `limit` tasks a call.
--
-- ARGV[1]  {limit}
-- Answer   {'ok', finished tasks, dead letters, worker records}   more may be left when one equals `limit`
--          {'unknown_queue'}
local needed = {'level_names', 'dead_retention_us'}
--@include base
--@include types
--@include retention
--@include spec
--@include task
if not is_defined then return answer('unknown_queue') end
check_types()

local function delete_tasks(key, before_us)
  local ids = redis.call('ZRANGEBYSCORE', key, '-inf', before_us, 'LIMIT', 0, request.limit)
  for _, id in ipairs(ids) do delete_later(id) end
  remove_all(key, ids)
  return #ids
end

local finished = delete_tasks(finished_key, now_us)
local dead = 0
if config.dead_retention_us > 0 then dead = delete_tasks(dead_key, now_us - config.dead_retention_us) end

local workers = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', dead_workers_key, '-inf', now_us - DEAD_WORKER_KEPT_US, 'LIMIT', 0, request.limit)) do
  -- A record with leases stays until they are taken back, or its load would be wrong if the worker returns.
  if tonumber(redis.call('HGET', key_of('worker', worker), 'load') or 0) <= 0 then
    redis.call('DEL', key_of('worker', worker), key_of('wake-worker', worker))
    workers[#workers + 1] = worker
  end
end
remove_all(dead_workers_key, workers)

-- A capability set that nothing waits for is forgotten; the next task that needs it announces it anew.
for _, capset in ipairs(redis.call('SMEMBERS', capsets_key)) do
  local waiting = 0
  for _, level in ipairs(config.level_names) do waiting = waiting + redis.call('ZCARD', ready_key(level, capset)) end
  if waiting == 0 and capset ~= '' then redis.call('SREM', capsets_key, capset) end
end
delete_doomed()
return answer('ok', finished, dead, #workers)
