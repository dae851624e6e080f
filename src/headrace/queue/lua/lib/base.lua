-- Shared by every script: key names, the clock, the configuration, the answer.
--
-- KEYS are the queue's fixed keys, in the order of headrace.queue.keys.FIXED. Keys of single tasks, workers,
-- levels and so on cannot be known before the script runs; they are built here from the same prefix, so
-- they carry the same hash tag and live in the same slot as the declared ones.
local config_key, delayed_key, leases_key, dead_key, finished_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local workers_key, dead_workers_key, stats_key = KEYS[6], KEYS[7], KEYS[8]
local capsets_key, events_key, latencies_key = KEYS[9], KEYS[10], KEYS[11]
local prefix = string.sub(config_key, 1, -7)

local function task_key(id) return prefix .. 'task:' .. id end
local function ready_key(level, capset) return prefix .. 'ready:' .. level .. ':' .. capset end
local function worker_key(worker) return prefix .. 'worker:' .. worker end
local function idempotency_key(key) return prefix .. 'idempotency:' .. key end
local function sent_key(digest) return prefix .. 'sent:' .. digest end
local function wake_key(capset) return prefix .. 'wake:' .. capset end
local function worker_wake_key(worker) return prefix .. 'wake-worker:' .. worker end
local function throughput_key(slot) return prefix .. 'throughput:' .. string.format('%.0f', slot) end

-- Redis' own clock, frozen for the whole script. No worker's clock is ever trusted.
local clock = redis.call('TIME')
local now_us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local request = cmsgpack.unpack(ARGV[1])
local stored = redis.call('HMGET', config_key, 'packed', 'paused')
local config = stored[1] and cmsgpack.unpack(stored[1])
local paused = stored[2] == '1'

local function answer(...) return cmsgpack.pack({...}) end

-- The base timeout is stored once; every retry stretches it.
local function attempt_timeout_us(timeout_us, retries)
  return math.min(math.floor(timeout_us * config.timeout_factor ^ retries), config.max_duration_us)
end

-- A script that fails half-way is not rolled back, so a key of the wrong type must be found before the
-- first write. Each of these reads raises WRONGTYPE while nothing has been changed.
local function check_types()
  for _, key in ipairs({delayed_key, leases_key, dead_key, finished_key, workers_key, dead_workers_key}) do
    redis.call('ZCARD', key)
  end
  redis.call('HLEN', stats_key)
  redis.call('SCARD', capsets_key)
  redis.call('XLEN', events_key)
  redis.call('LLEN', latencies_key)
end

-- Redis prints a number argument with seventeen digits, which takes longer than most commands. The paths that
-- every task takes hand over text, and print each number once.
local printed = {}
local function text(number)
  local known = printed[number]
  if not known then
    known = string.format('%.0f', number)
    printed[number] = known
  end
  return known
end

-- ZADD in chunks: Lua's unpack is limited to some thousands of values.
local function add_all(key, pairs_flat)
  for first = 1, #pairs_flat, 1000 do
    redis.call('ZADD', key, unpack(pairs_flat, first, math.min(first + 999, #pairs_flat)))
  end
end

-- Sorted-set entries of a whole batch, written with one command per key when the script concludes.
local additions = {}
local function add_later(key, score, id)
  local flat = additions[key]
  if not flat then
    flat = {}
    additions[key] = flat
  end
  flat[#flat + 1] = text(score)
  flat[#flat + 1] = id
end

local function write_additions()
  for key, flat in pairs(additions) do add_all(key, flat) end
  additions = {}
end

local function remove_all(key, members)
  for first = 1, #members, 1000 do
    redis.call('ZREM', key, unpack(members, first, math.min(first + 999, #members)))
  end
end
