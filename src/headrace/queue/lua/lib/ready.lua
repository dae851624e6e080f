-- Making tasks available, and waking exactly as many idle workers as that needs.
local made_ready = {}       -- line -> how many tasks became available in this call
local unheard_line = false
local sooner_due = false    -- a task is due before any that idle workers know of

local function existing_level(level)
  for _, name in ipairs(config.level_names) do
    if name == level then return level end
  end
  return config.level_names[#config.level_names]
end

local function make_ready(id, level, line, place_us)
  add_later(ready_key(level, line), place_us, id)
  made_ready[line] = (made_ready[line] or 0) + 1
  if line ~= '' and redis.call('SADD', capsets_key, line) == 1 then unheard_line = true end
end

local function make_due(id, due_us)
  local soonest = redis.call('ZRANGE', delayed_key, '0', '0', 'WITHSCORES')[2]
  if not soonest or due_us < tonumber(soonest) then sooner_due = true end
  redis.call('ZADD', delayed_key, text(due_us), id)
end

-- Idle workers block on a list per line. One token wakes one worker, who claims as many tasks as
-- it has room for. There are never more tokens than workers; a claim that finds nothing clears them.
local tokens_wanted = {}   -- line -> how many tokens there is room for
local function look_for_tokens(line)
  local workers = redis.call('ZCARD', workers_key)
  tokens_wanted[line] = workers > 0 and workers - redis.call('LLEN', key_of('wake', line)) or 0
end

local function wake(line, tasks)
  if not tokens_wanted[line] then look_for_tokens(line) end
  local tokens = math.min(tasks, tokens_wanted[line])
  for _ = 1, tokens do redis.call('RPUSH', key_of('wake', line), '1') end
  tokens_wanted[line] = tokens_wanted[line] - tokens
end

local function wake_everyone()
  local key = key_of('wake', '')
  for _ = redis.call('LLEN', key) + 1, redis.call('ZCARD', workers_key) do redis.call('RPUSH', key, '1') end
end

-- An operator that scales workers leaves word how many more tasks may come to wait before it wants to know
-- (`bell.lua`). Whoever brings one too many takes the word away and rings: a burst is one message.
local function ring_for_workers()
  local brought = 0
  for _, tasks in pairs(made_ready) do brought = brought + tasks end
  local room = brought > 0 and redis.call('HGET', config_key, 'room')
  if not room then return end
  if brought > tonumber(room) then
    redis.call('HDEL', config_key, 'room')
    -- A producer may lack the right to publish. The tasks are stored by then, and the operator looks by itself, too.
    redis.pcall('PUBLISH', prefix .. 'bell', now_text)
  else
    redis.call('HINCRBY', config_key, 'room', text(-brought))
  end
end

local function wake_idle_workers()
  ring_for_workers()
  for line, tasks in pairs(made_ready) do wake(line, tasks) end
  -- An idle worker sleeps until the earliest due time it knows of; one of them must hear of a sooner one.
  if sooner_due then wake('', 1) end
  -- A blocked worker does not listen for a line it has never heard of: tell all of them once.
  if unheard_line then wake_everyone() end
end
