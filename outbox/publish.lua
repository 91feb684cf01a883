-- Appends the events of some lanes to one stream, if the stream is still in the
-- expected epoch.
--
-- KEYS  epoch, fence hash, stream (one hash tag)
-- ARGV  expected epoch, lineage, number of lanes; the lanes' ids; then for each
--       lane: resource, the number that the fence must have reached, number of
--       events; and for each of its events: seq, kind, id, at, payload
--
-- Answers {'epoch', current epoch}, or for each lane its fence, how many entries
-- were added, and '' or 'gap' or the error that stopped it.
--
-- An event whose seq the fence has reached is a duplicate and is left out. One
-- whose predecessor the fence has not reached is refused: Redis lost something.
-- Fences are read and set at once for all lanes; no error can come in between,
-- since a script that has written is not refused memory.
local epoch, lineage, lanes = ARGV[1], ARGV[2], tonumber(ARGV[3])
local current = redis.call('GET', KEYS[1])
if current ~= epoch then
  return {'epoch', current or ''}
end
local stream = KEYS[3]
local fences = redis.call('HMGET', KEYS[2], unpack(ARGV, 4, 3 + lanes))
local answer, reached = {}, {}
local i = 4 + lanes
for l = 1, lanes do
  local resource, after, count = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  i = i + 3
  local fence, last, added, stopped = tonumber(fences[l] or '0'), nil, 0, ''
  for _ = 1, count do
    local seq = tonumber(ARGV[i])
    if stopped == '' and seq > fence then
      if fence < after then
        stopped = 'gap'
      else
        local done = redis.pcall('XADD', stream, '*', 'lineage', lineage, 'epoch', epoch, 'resource', resource,
          'seq', ARGV[i], 'kind', ARGV[i + 1], 'id', ARGV[i + 2], 'at', ARGV[i + 3], 'payload', ARGV[i + 4])
        if type(done) == 'table' and done.err then
          stopped = done.err
        else
          fence, last, added = seq, ARGV[i], added + 1
        end
      end
    end
    after = seq
    i = i + 5
  end
  if last then
    reached[#reached + 1] = ARGV[3 + l]
    reached[#reached + 1] = last
  end
  local a = #answer
  answer[a + 1], answer[a + 2], answer[a + 3] = fence, added, stopped
end
if #reached > 0 then
  redis.call('HSET', KEYS[2], unpack(reached))
end
return answer
