-- For how long the record of a dead worker is kept.
local DEAD_WORKER_KEPT_US = 3600 * 1000000
