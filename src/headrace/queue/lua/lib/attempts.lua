-- How an attempt ends. Settle and reclaim both come here, so a crash and a reported failure follow one rule.
local MAX_HISTORY = 50

-- A level that the configuration no longer has must not swallow a task: it goes to the lowest one, for good.
local function settle_on_level(task)
  local level = existing_level(task.level)
  if level ~= task.level then
    local spec = task.spec
    task.level = level
    redis.call('HSET', task_key(task.id), 'spec',
      spec_text(level, text(spec.max_retries), text(spec.timeout_us), text(spec.created_us), spec.capset))
  end
  return level
end

local function backoff_us(retries, random)
  local delay_us = math.min(config.backoff_base_us * 2 ^ retries, config.backoff_max_us)
  return math.floor(delay_us * (1 - config.backoff_jitter * random))
end

-- Several tasks may need jitter in one call: walk from the one random number that came in.
local jitter_steps = 0
local function next_random()
  jitter_steps = jitter_steps + 1
  return (request.random + jitter_steps * 0.6180339887498949) % 1
end

-- The worker's load is kept here and nowhere else, so that drain can trust it.
local released = {}   -- worker -> how many leases it gave up or lost in this call
local function release_slot(task)
  local worker = task.worker
  if not worker then return end
  released[worker] = (released[worker] or 0) + 1
  local key = key_of('worker', worker)
  if task.crashes > 0 and redis.call('HGET', key, 'suspect') == task.id then
    redis.call('HDEL', key, 'suspect')
    redis.call('RPUSH', key_of('wake-worker', worker), '1')   -- it may take the next one, and does not listen for it
  end
end

local function update_released_workers()
  for worker, slots in pairs(released) do
    local key = key_of('worker', worker)
    local load = redis.call('HGET', key, 'load')   -- none when its record is gone
    if load and tonumber(load) <= slots then
      redis.call('HSET', key, 'load', text(load - slots), 'idle_since_us', now_text)
    elseif load then
      redis.call('HSET', key, 'load', text(load - slots))
    end
  end
end

local function notify_watchers(task)
  if not task.watchers then return end
  for inbox in string.gmatch(task.watchers, '%S+') do redis.call('PUBLISH', inbox, task.id) end
end

-- completed, failed or cancelled: kept for as long as results are kept, then purged.
local function finish(task, state, field, value)
  if config.result_retention_us > 0 then
    local key = task_key(task.id)
    if field then
      redis.call('HSET', key, 'state', state, 'finished_us', now_text, field, value)
    else
      redis.call('HSET', key, 'state', state, 'finished_us', now_text)
    end
    add_later(finished_key, now_us + config.result_retention_us, task.id)
  else
    delete_later(task.id)
  end
  notify_watchers(task)
  event(task.id, state, task.promoted or task.level, task.retries + 1, task.worker)
  if state ~= 'cancelled' then count_end(state, task.level) end
end

local function dead_letter(task, reason, problem)
  redis.call('HSET', task_key(task.id), 'state', 'dead_letter', 'reason', reason, 'error', problem, 'finished_us', text(now_us))
  redis.call('ZADD', dead_key, text(now_us), task.id)
  notify_watchers(task)
  event(task.id, 'dead_letter', task.level, task.retries + 1, task.worker, reason)
  count_end('dead_letter', task.level, reason)
end

local function remember_attempt(task, reason, problem)
  local key = task_key(task.id)
  local packed = redis.call('HGET', key, 'history')
  local history = packed and cmsgpack.unpack(packed) or {}
  history[#history + 1] = {task.retries + 1, task.worker or '', task.started_us, now_us, reason, problem}
  if #history > MAX_HISTORY then table.remove(history, 1) end
  redis.call('HSET', key, 'history', cmsgpack.pack(history))
end

-- After a failed attempt: wait for the next one, or be buried. The task returns to its original level.
local function retry_or_bury(task, reason, problem, after_us)
  remember_attempt(task, reason, problem)
  if task.retries + 1 > task.max_retries then
    return dead_letter(task, 'max_retries_exceeded', problem)
  end
  local delay_us = after_us or backoff_us(task.retries, next_random())
  local key = task_key(task.id)
  local level = settle_on_level(task)
  redis.call('HDEL', key, 'worker', 'promoted', 'started_us')
  redis.call('HSET', key, 'state', delay_us > 0 and 'retrying' or 'queued', 'retries', task.retries + 1, 'error', problem)
  if delay_us > 0 then
    make_due(task.id, now_us + delay_us)
  else
    make_ready(task.id, level, line_of(task.capset, task.crashes), task.place_us)
  end
  event(task.id, 'retrying', level, task.retries + 1, task.worker, reason)
  count_end('retrying', level, reason)
end
