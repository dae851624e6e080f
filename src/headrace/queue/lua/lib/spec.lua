-- Reading what never changes in a task's life.
local known_specs = {}
local function read_spec(stored_text)
  local spec = known_specs[stored_text]
  if not spec then
    local level, max_retries, timeout_us, created_us, capset =
      string.match(stored_text, '^(%S+) (%d+) (%d+) (%d+) (%S*)$')
    spec = {level = level, max_retries = tonumber(max_retries), timeout_us = tonumber(timeout_us),
      created_us = tonumber(created_us), capset = capset}
    known_specs[stored_text] = spec
  end
  return spec
end

-- The base timeout is stored once; every retry stretches it.
local function attempt_timeout_us(timeout_us, retries)
  return math.min(math.floor(timeout_us * config.timeout_factor ^ retries), config.max_duration_us)
end
