#!lua
-- configure: publish a queue's configuration.
--
-- ARGV[1]  {config, json, levels = {name, ...}, owner = 'app' | 'operator', generation}
--          What the operator has published is not overwritten by an app's own declaration.
-- Answer   {'ok', changed, json in force}
--          {'level_in_use', level, waiting}    a level that disappears still has waiting tasks; nothing was written
--@include base
--@include ready
local current = redis.call('HMGET', config_key, 'json', 'owner', 'generation')
if current[2] == 'operator' and request.owner ~= 'operator' then return answer('ok', false, current[1]) end
if current[2] == request.owner and tonumber(current[3]) > request.generation then return answer('ok', false, current[1]) end
if current[1] == request.json and current[2] == request.owner then return answer('ok', false, current[1]) end

local kept = {}
for _, level in ipairs(request.levels) do kept[level] = true end
for level in pairs(level_names) do
  if not kept[level] then
    for _, capset in ipairs(redis.call('SMEMBERS', capsets_key)) do
      local waiting = redis.call('ZCARD', ready_key(level, capset))
      if waiting > 0 then return answer('level_in_use', level, waiting) end
    end
  end
end
check_types()
redis.call('HSET', config_key, 'packed', cmsgpack.pack(request.config), 'json', request.json, 'owner', request.owner,
  'generation', request.generation)
redis.call('SADD', capsets_key, '')
wake_everyone()
return answer('ok', true, request.json)
