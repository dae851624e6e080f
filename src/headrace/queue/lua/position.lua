#!lua flags=no-writes
-- position: how many tasks go first.
--
-- ARGV[1]  {id}
-- Answer   {'ok', position}   1 for the next task; 0 for one that is not waiting
--          {'not_found'} | {'unknown_queue'}
--
-- With strict selection everything in the levels above goes first. With weighted selection no order
-- between levels exists, so the position is the one within the task's own level.
local needed = {'level_names', 'selection'}
--@include base
--@include spec
if not is_defined then return answer('unknown_queue') end
local task = redis.call('HMGET', task_key(request.id), 'spec', 'state', 'promoted')
if not task[1] then return answer('not_found') end
if task[2] and task[2] ~= 'queued' then return answer('ok', 0) end

local spec = read_spec(task[1])
local own_level = task[3] or spec.level
local own_key = ready_key(own_level, spec.capset)
local place_us = redis.call('ZSCORE', own_key, request.id)
if not place_us then
  own_key = ready_key(own_level, spec.capset .. SUSPECT)
  place_us = redis.call('ZSCORE', own_key, request.id)
end
if not place_us then return answer('not_found') end
local ahead = redis.call('ZRANK', own_key, request.id)
local capsets = redis.call('SMEMBERS', capsets_key)
for _, level in ipairs(config.level_names) do
  for _, capset in ipairs(capsets) do
    local key = ready_key(level, capset)
    if level == own_level then
      if key ~= own_key then ahead = ahead + redis.call('ZCOUNT', key, '-inf', '(' .. place_us) end
    elseif config.selection == 'strict' then
      ahead = ahead + redis.call('ZCARD', key)
    end
  end
  if level == own_level then break end
end
return answer('ok', ahead + 1)
