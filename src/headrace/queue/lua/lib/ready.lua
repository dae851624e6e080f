-- Making tasks available, and waking exactly as many idle workers as that needs.
local level_names = {}
for _, level in ipairs(config and config.levels or {}) do level_names[level.name] = true end

local made_ready = {}       -- capset -> how many tasks became available in this call
local unheard_capset = false
local sooner_due = false    -- a task is due before any that idle workers know of

-- A level that the configuration no longer has must not swallow a task: it goes to the lowest one.
local function existing_level(level)
  if level_names[level] then return level end
  return config.levels[#config.levels].name
end

local function make_ready(id, level, capset, place_us)
  add_later(ready_key(level, capset), place_us, id)
  made_ready[capset] = (made_ready[capset] or 0) + 1
  if capset ~= '' and redis.call('SADD', capsets_key, capset) == 1 then unheard_capset = true end
end

local function make_due(id, due_us)
  local soonest = redis.call('ZRANGE', delayed_key, 0, 0, 'WITHSCORES')[2]
  if not soonest or due_us < tonumber(soonest) then sooner_due = true end
  redis.call('ZADD', delayed_key, due_us, id)
end

-- Idle workers block on a list per capability set. One token wakes one worker, who claims as many tasks as
-- it has room for. There are never more tokens than workers; a claim that finds nothing clears them.
local function wake(capset, tasks)
  local key = wake_key(capset)
  local wanted = math.min(tasks, redis.call('ZCARD', workers_key) - redis.call('LLEN', key))
  for _ = 1, wanted do redis.call('RPUSH', key, '1') end
end

local function wake_everyone()
  local key = wake_key('')
  for _ = redis.call('LLEN', key) + 1, redis.call('ZCARD', workers_key) do redis.call('RPUSH', key, '1') end
end

local function wake_idle_workers()
  for capset, tasks in pairs(made_ready) do wake(capset, tasks) end
  -- An idle worker sleeps until the earliest due time it knows of; one of them must hear of a sooner one.
  if sooner_due then wake('', 1) end
  -- A blocked worker does not listen for a capability set it has never heard of: tell all of them once.
  if unheard_capset then wake_everyone() end
end
