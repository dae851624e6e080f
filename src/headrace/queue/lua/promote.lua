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
local needed = {'promotion_interval_us'}
--@include base
--@include types
--@include events
--@include ready
if not is_defined then return answer('unknown_queue') end
local last_us = tonumber(redis.call('HGET', stats_key, 'promoted_at_us') or 0)
if not request.force and now_us - last_us < config.promotion_interval_us then return answer('ok', {}) end
check_types()

local capsets = redis.call('SMEMBERS', capsets_key)
local moved_by_rule = {}
for _, rule in ipairs(config.promotions) do
  local aged = {}
  for _, capset in ipairs(capsets) do
    redis.call('ZCARD', ready_key(rule.target, capset))
    local found = redis.call('ZRANGEBYSCORE', ready_key(rule.source, capset), '-inf', now_us - rule.after_us,
      'WITHSCORES', 'LIMIT', 0, rule.batch)
    for i = 1, #found, 2 do aged[#aged + 1] = {id = found[i], place_us = tonumber(found[i + 1]), capset = capset} end
  end
  -- The oldest of all capability sets together: no set can use the batches up and starve another.
  table.sort(aged, function(a, b)
    if a.place_us ~= b.place_us then return a.place_us < b.place_us end
    return a.id < b.id
  end)
  local moved = math.min(rule.batch, #aged)
  local ids, placed = {}, {}   -- by capability set
  for i = 1, moved do
    local id, capset = aged[i].id, aged[i].capset
    if not ids[capset] then ids[capset], placed[capset] = {}, {} end
    table.insert(ids[capset], id)
    table.insert(placed[capset], aged[i].place_us)
    table.insert(placed[capset], id)
    if redis.call('EXISTS', task_key(id)) == 1 then redis.call('HSET', task_key(id), 'promoted', rule.target) end
    event(id, 'promoted', rule.target, 0, '', rule.source)
  end
  for capset in pairs(ids) do
    add_all(ready_key(rule.target, capset), placed[capset])
    remove_all(ready_key(rule.source, capset), ids[capset])
  end
  if moved > 0 then
    moved_by_rule[#moved_by_rule + 1] = {rule.source, rule.target, moved}
    count('promoted:' .. rule.source .. ':' .. rule.target, moved)
  end
end
redis.call('HSET', stats_key, 'promoted_at_us', now_us)
conclude()
return answer('ok', moved_by_rule)
