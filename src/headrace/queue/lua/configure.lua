#!lua flags=allow-oom
-- configure: publish a queue's configuration.
--
-- ARGV[1]  {config = {setting = value, ...}, json, owner = 'app' | 'operator', generation, format}
--          What the operator has published is not overwritten by an app's own declaration. `format` rises when
--          the scripts come to read something new in `config`.
-- Answer   {'ok', json in force, its owner, its generation, whether its format is at least `format`}
--          {'level_in_use', level, waiting}    a level that disappears still has waiting tasks; nothing was written
--
-- Allowed out of memory: a worker that starts then must be able to declare its queues and work them off.
local needed = {'level_names'}
--@include base
--@include types
--@include ready
local current = redis.call('HMGET', config_key, 'json', 'owner', 'generation', 'format')
local json, owner, generation, format = current[1], current[2], tonumber(current[3]), tonumber(current[4] or 0)
local overruled = owner == 'operator' and request.owner ~= 'operator'
local outdated = owner == request.owner and generation > request.generation
local unchanged = owner == request.owner and json == request.json and format >= request.format
if overruled or outdated or unchanged then return answer('ok', json, owner, generation, format >= request.format) end

local kept = {}
for _, level in ipairs(request.config.level_names) do kept[level] = true end
for _, level in ipairs(config.level_names or {}) do
  if not kept[level] then
    for _, line in ipairs(redis.call('SMEMBERS', capsets_key)) do
      local waiting = redis.call('ZCARD', ready_key(level, line))
      if waiting > 0 then return answer('level_in_use', level, waiting) end
    end
  end
end
check_types()
redis.call('HSET', config_key, 'json', request.json, 'owner', request.owner, 'generation', request.generation,
  'format', request.format)
for name, value in pairs(request.config) do redis.call('HSET', config_key, name, cmsgpack.pack(value)) end
redis.call('SADD', capsets_key, '')
wake_everyone()
return answer('ok', request.json, request.owner, request.generation, true)
