-- Starts an epoch whose fences are in place: tells the consumers, and sets the
-- epoch key last. Refuses when the key is no longer the one that was seen.
--
-- KEYS  epoch, stream    ARGV  epoch that was seen ('' for none), new epoch, fields of the resync entry
local current = redis.call('GET', KEYS[1]) or ''
if current ~= ARGV[1] then
  return 0
end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
redis.call('SET', KEYS[1], ARGV[2])
return 1
