-- What keeps a queue healthy with nobody watching: due tasks become ready, expired leases are taken back.
-- Both are bounded by `limit`, so that a claim which repairs first stays short.

-- returns how many tasks became ready
local function forward_due(limit)
  local due = redis.call('ZRANGEBYSCORE', delayed_key, '-inf', now_text, 'WITHSCORES', 'LIMIT', '0', limit)
  local moved = {}
  for i = 1, #due, 2 do
    local id = due[i]
    moved[#moved + 1] = id
    local task = load_task(id)
    if task then
      local level = settle_on_level(task)
      -- A scheduled task has waited since it became visible; a retry keeps the place it had.
      local place_us = task.state == 'scheduled' and tonumber(due[i + 1]) or task.place_us
      redis.call('HSET', task_key(id), 'state', 'queued', 'place_us', text(place_us))
      make_ready(id, level, line_of(task.capset, task.crashes), place_us)
      event(id, 'forwarded', level, task.retries + 1)
    end
  end
  remove_all(delayed_key, moved)
  return #moved
end

local CRASHED = '{"type":"LeaseExpired","message":"the worker stopped renewing its lease"}'
local TIMED_OUT = '{"type":"TaskTimeout","message":"the attempt ran past its timeout"}'

-- returns how many leases were taken back
local function reclaim_expired(limit)
  local expired = redis.call('ZRANGEBYSCORE', leases_key, '-inf', now_text, 'LIMIT', '0', limit)
  for _, id in ipairs(expired) do
    local task = load_task(id)
    if task then
      -- The next token, so that whatever the old holder still sends is refused.
      redis.call('HSET', task_key(id), 'token', task.token + 1)
      release_slot(task)
      if task.cancel then
        finish(task, 'cancelled')
      elseif now_us >= task.started_us + attempt_timeout_us(task.timeout_us, task.retries) then
        count('timeouts')
        retry_or_bury(task, 'timeout', TIMED_OUT)
      else
        task.crashes = task.crashes + 1
        count('lease_expired')
        redis.call('HSET', task_key(id), 'crashes', task.crashes)
        if task.crashes >= config.max_crashes then
          remember_attempt(task, 'lease_expired', CRASHED)
          dead_letter(task, 'poison', CRASHED)
        else
          retry_or_bury(task, 'lease_expired', CRASHED)
        end
      end
    end
  end
  remove_all(leases_key, expired)
  return #expired
end
