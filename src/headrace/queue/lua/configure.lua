#!lua flags=allow-oom
-- configure: publish a queue's configuration.
--
-- ARGV[1]  {config = {setting = value, ...}, json, owner = 'app' | 'operator', generation, format, holder, epoch}
--          What the operator has published is not overwritten by an app's own declaration. `format` rises when
--          the scripts come to read something new in `config`. `holder` is PLACE/UID of the object that the operator
--          publishes for, and empty for an app: one queue has one holder, unless it has not been heard of for long
--          or has been made anew at the same place. `epoch` is the number of the leader's term.
-- Answer   {'ok', json in force, its owner, its generation, whether its format is at least `format`}
--          {'level_in_use', level, waiting}    a level that disappears still has waiting tasks; nothing was written
--          {'held', holder}                    somebody else holds the queue; nothing was written
--          {'deposed'}                         see base.lua
--
-- Allowed out of memory: a worker that starts then must be able to declare its queues and work them off.
local needed = {'level_names'}
--@include base
--@include types
--@include ready
local HOLDER_HEARD_US = 90 * 1000000

local current = redis.call('HMGET', config_key, 'json', 'owner', 'generation', 'format', 'holder', 'holder_seen_us')
local json, owner, generation, format = current[1], current[2], tonumber(current[3]), tonumber(current[4] or 0)
local holder, holder_seen_us = current[5] or '', tonumber(current[6] or 0)
local new_holder = request.holder or ''

local function place_of(text) return string.match(text, '^(.*)/[^/]*$') or text end

if new_holder ~= '' then
  local is_other = holder ~= '' and place_of(holder) ~= place_of(new_holder)
  if is_other and now_us - holder_seen_us < HOLDER_HEARD_US then return answer('held', holder) end
  redis.call('HSET', config_key, 'holder', new_holder, 'holder_seen_us', now_text)
end
if request.epoch then redis.call('HSET', config_key, 'epoch', request.epoch) end

local overruled = owner == 'operator' and request.owner ~= 'operator'
local outdated = owner == request.owner and generation > request.generation and holder == new_holder
local unchanged = owner == request.owner and json == request.json and format >= request.format
  and (new_holder == '' or holder == new_holder)
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
