#!lua flags=no-writes
-- pulse: what an operator has to know every second: what is due, what waits, and who works.
--
-- ARGV[1]  {soon_us}
-- Answer   {'ok', now_us, paused, {{level, depth, oldest_us or 0}, ...}, {executing, delayed, dead, finished},
--           {{worker, state, load, capacity, parked, host, idle_since_us}, ...} of live workers, dead workers,
--           completed last minute, failed last minute, {forward_us, reclaim_us, promote_us, purge_us},
--           {{level, line, depth}, ...} of what waits, delayed tasks due within soon_us,
--           {{level, runs, run_us}, ...} of handlers that ended lately, the bell's room or -1,
--           {claimed, enqueued, orphans, {{from, to, promoted}, ...}, {{level, ends, ...}, ...}}}
--          the four moments say when each of them has something to do; 0 when it has nothing
--          the last is counted since the queue exists; a level's ends are in the order of ENDS
--          {'unknown_queue'}
--
-- Bounded by levels x lines, levels x ends and by workers; unlike `stats` it reads no samples.
local needed = {'level_names', 'promotions', 'promotion_interval_us', 'worker_dead_after_us', 'dead_retention_us'}
--@include base
--@include figures
--@include retention
if not is_defined then return answer('unknown_queue') end

-- The score of the first entry plus `after_us`, or 0 when there is none.
local function first_us(key, after_us)
  local score = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score) + after_us or 0
end

local function sooner(a_us, b_us)
  if a_us == 0 then return b_us end
  if b_us == 0 then return a_us end
  return math.min(a_us, b_us)
end

local workers = {}
for index, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  local record = redis.call('HMGET', key_of('worker', worker), 'state', 'load', 'capacity', 'parked', 'host', 'idle_since_us')
  workers[index] = {worker, record[1] or 'active', tonumber(record[2] or 0), tonumber(record[3] or 0),
    record[4] and true or false, record[5] or '', tonumber(record[6] or 0)}
end

-- The fields of `stats` that are counted by level, read in one go with all others.
local ENDS = {'completed:%s', 'failed:%s', 'dead_letter:%s:max_retries_exceeded', 'dead_letter:%s:poison',
  'retrying:%s:error', 'retrying:%s:timeout', 'retrying:%s:lease_expired'}
local fields = {'promoted_at_us', 'claimed', 'enqueued', 'orphans'}
for _, rule in ipairs(config.promotions) do fields[#fields + 1] = 'promoted:' .. rule.source .. ':' .. rule.target end
for _, level in ipairs(config.level_names) do
  for _, field in ipairs(ENDS) do fields[#fields + 1] = string.format(field, level) end
end
local values, at = redis.call('HMGET', stats_key, unpack(fields)), 0
local function next_count()
  at = at + 1
  return tonumber(values[at] or 0)
end

local promoted_at_us, claimed, enqueued, orphans = next_count(), next_count(), next_count(), next_count()
local promote_us = #config.promotions > 0 and promoted_at_us + config.promotion_interval_us or 0
local promoted, ended = {}, {}
for index, rule in ipairs(config.promotions) do promoted[index] = {rule.source, rule.target, next_count()} end
for index, level in ipairs(config.level_names) do
  local row = {level}
  for _ = 1, #ENDS do row[#row + 1] = next_count() end
  ended[index] = row
end

local purge_us = sooner(first_us(finished_key, 0), first_us(dead_workers_key, DEAD_WORKER_KEPT_US))
if config.dead_retention_us > 0 then purge_us = sooner(purge_us, first_us(dead_key, config.dead_retention_us)) end

local service = {}
for _, level in ipairs(config.level_names) do
  local ran = redis.call('HMGET', key_of('service', level), 'runs', 'run_us')
  if ran[1] then service[#service + 1] = {level, tonumber(ran[1]), tonumber(ran[2])} end
end

local completed, failed = last_minute()
local levels, by_line = waiting_levels()
return answer('ok', now_us, paused, levels,
  {redis.call('ZCARD', leases_key), redis.call('ZCARD', delayed_key), redis.call('ZCARD', dead_key),
    redis.call('ZCARD', finished_key)},
  workers, redis.call('ZCARD', dead_workers_key), completed, failed, {
    first_us(delayed_key, 0),
    sooner(first_us(leases_key, 0), first_us(workers_key, config.worker_dead_after_us)),
    promote_us,
    purge_us,
  }, by_line, redis.call('ZCOUNT', delayed_key, '-inf', text(now_us + request.soon_us)),
  service, tonumber(redis.call('HGET', config_key, 'room') or -1), {claimed, enqueued, orphans, promoted, ended})
