#!lua flags=no-writes
-- stats: the queue at a glance, read at one instant. Bounded by levels x capability sets and by workers.
--
-- ARGV[1]  {}
-- Answer   {'ok', now_us, {{level, depth, oldest_us or 0}, ...}, {executing, delayed, dead, finished},
--           {{state, load, capacity}, ...} of live workers, dead workers, stats {field, value, ...},
--           completed last minute, failed last minute, latency samples, paused}
--          {'unknown_queue'}
local needed = {'level_names'}
--@include base
--@include figures
if not is_defined then return answer('unknown_queue') end

local workers = {}
for index, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  local record = redis.call('HMGET', key_of('worker', worker), 'state', 'load', 'capacity')
  workers[index] = {record[1] or 'active', tonumber(record[2] or 0), tonumber(record[3] or 0)}
end

local completed, failed = last_minute()
local places = {redis.call('ZCARD', leases_key), redis.call('ZCARD', delayed_key), redis.call('ZCARD', dead_key),
  redis.call('ZCARD', finished_key)}
return answer('ok', now_us, (waiting_levels()), places, workers, redis.call('ZCARD', dead_workers_key),
  redis.call('HGETALL', stats_key), completed, failed, redis.call('LRANGE', latencies_key, 0, -1), paused)
