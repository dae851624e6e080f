#!lua flags=no-writes
-- position: how many tasks go first.
--
-- ARGV[1]  {id}
-- Answer   {'ok', position}   1 for the next task; 0 for one that is not waiting
--          {'not_found'} | {'unknown_queue'}
--
-- With strict selection everything in the levels above goes first. With weighted selection no order
-- between levels exists, so the position is the one within the task's own level.
--@include base
if not config then return answer('unknown_queue') end
local task = redis.call('HMGET', task_key(request.id), 'state', 'level', 'promoted', 'caps')
if not task[1] then return answer('not_found') end
if task[1] ~= 'queued' then return answer('ok', 0) end

local own_level = task[3] or task[2]
local own_key = ready_key(own_level, task[4] or '')
local place_us = redis.call('ZSCORE', own_key, request.id)
if not place_us then return answer('not_found') end
local ahead = redis.call('ZRANK', own_key, request.id)
local capsets = redis.call('SMEMBERS', capsets_key)
for _, level in ipairs(config.levels) do
  for _, capset in ipairs(capsets) do
    local key = ready_key(level.name, capset)
    if level.name == own_level then
      if key ~= own_key then ahead = ahead + redis.call('ZCOUNT', key, '-inf', '(' .. place_us) end
    elseif config.selection == 'strict' then
      ahead = ahead + redis.call('ZCARD', key)
    end
  end
  if level.name == own_level then break end
end
return answer('ok', ahead + 1)
