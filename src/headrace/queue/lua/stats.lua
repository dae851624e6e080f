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
if not is_defined then return answer('unknown_queue') end

local capsets = redis.call('SMEMBERS', capsets_key)
local levels = {}
for index, level in ipairs(config.level_names) do
  local depth, oldest_us = 0, nil
  for _, capset in ipairs(capsets) do
    local key = ready_key(level, capset)
    depth = depth + redis.call('ZCARD', key)
    local head = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
    if head and (not oldest_us or head < oldest_us) then oldest_us = head end
  end
  levels[index] = {level, depth, oldest_us or 0}
end

local workers = {}
for index, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  local record = redis.call('HMGET', key_of('worker', worker), 'state', 'load', 'capacity')
  workers[index] = {record[1] or 'active', tonumber(record[2] or 0), tonumber(record[3] or 0)}
end

local completed, failed = 0, 0
local slot = math.floor(now_us / 10000000)
for back = 0, 5 do
  local bucket = redis.call('HMGET', key_of('throughput', text(slot - back)), 'completed', 'failed')
  completed = completed + tonumber(bucket[1] or 0)
  failed = failed + tonumber(bucket[2] or 0)
end

local places = {redis.call('ZCARD', leases_key), redis.call('ZCARD', delayed_key), redis.call('ZCARD', dead_key),
  redis.call('ZCARD', finished_key)}
return answer('ok', now_us, levels, places, workers, redis.call('ZCARD', dead_workers_key),
  redis.call('HGETALL', stats_key), completed, failed, redis.call('LRANGE', latencies_key, 0, -1), paused)
