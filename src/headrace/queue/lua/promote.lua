#!lua flags=allow-oom
-- promote: lift tasks that have waited too long to a higher level, oldest first, in bounded batches.
--
-- ARGV[1]  {force}     without force the call does nothing until the promotion interval has passed, so any
--                      number of workers and the operator may call it and the queue is promoted once.
-- Answer   {'ok', {{from, to, moved}, ...}}
--          {'unknown_queue'}
--
-- The rules run in the order of the configuration, each at most its batch. A task keeps its place in time,
-- so within the new level the oldest still goes first.
--@include base
--@include events
--@include ready
if not config then return answer('unknown_queue') end
local last_us = tonumber(redis.call('HGET', stats_key, 'promoted_at_us') or 0)
if not request.force and now_us - last_us < config.promotion_interval_us then return answer('ok', {}) end
check_types()

local capsets = redis.call('SMEMBERS', capsets_key)
local moved_by_rule = {}
for _, rule in ipairs(config.promotions) do
  local left = rule.batch
  for _, capset in ipairs(capsets) do
    local source, target = ready_key(rule.source, capset), ready_key(rule.target, capset)
    redis.call('ZCARD', target)
    local aged = redis.call('ZRANGEBYSCORE', source, '-inf', now_us - rule.after_us, 'WITHSCORES', 'LIMIT', 0, left)
    local ids, placed = {}, {}
    for i = 1, #aged, 2 do
      ids[#ids + 1] = aged[i]
      placed[#placed + 1] = aged[i + 1]
      placed[#placed + 1] = aged[i]
      if redis.call('EXISTS', task_key(aged[i])) == 1 then
        redis.call('HSET', task_key(aged[i]), 'promoted', rule.target)
      end
      event(aged[i], 'promoted', rule.target, 0, '', rule.source)
    end
    add_all(target, placed)
    remove_all(source, ids)
    left = left - #ids
    if left <= 0 then break end
  end
  local moved = rule.batch - left
  if moved > 0 then
    moved_by_rule[#moved_by_rule + 1] = {rule.source, rule.target, moved}
    count('promoted:' .. rule.source .. ':' .. rule.target, moved)
  end
end
redis.call('HSET', stats_key, 'promoted_at_us', now_us)
publish_events()
return answer('ok', moved_by_rule)
