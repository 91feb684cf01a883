package rpsl

import (
	"fmt"
	"strconv"
	"strings"
)

// parseASN reads an AS number as RPSL writes it, AS64496 (RFC 5396 asplain, RFC
// 2622 section 2), in either case.
func parseASN(s string) (uint32, error) {
	if len(s) < 3 || !strings.EqualFold(s[:2], "as") {
		if n, err := strconv.ParseUint(s, 10, 32); err == nil {
			return 0, fmt.Errorf("%q is no AS number; write AS%d", s, n)
		}
		return 0, fmt.Errorf("%q is no AS number; write it as AS64496", s)
	}
	digits := s[2:]
	if high, low, ok := strings.Cut(digits, "."); ok {
		h, errHigh := strconv.ParseUint(high, 10, 16)
		l, errLow := strconv.ParseUint(low, 10, 16)
		if errHigh == nil && errLow == nil {
			return 0, fmt.Errorf("%s is in asdot notation; write AS%d", s, h<<16|l)
		}
	}
	if strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no AS number; write it as AS64496", s)
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40s is too large; the last AS number is AS4294967295", s)
	}
	return uint32(n), nil
}

// parseAutNum reads an aut-num object.
func parseAutNum(h Header) (*AutNum, *Refusal) {
	number, err := parseASN(h.Key)
	if err == nil && number == 0 {
		err = fmt.Errorf("AS 0 is reserved and cannot be held (RFC 7607); it can only be the origin of a route")
	}
	if err != nil {
		return nil, h.refuse(h.Attributes[0], err.Error())
	}
	object := &AutNum{Header: h, Number: number}
	if h.Delete {
		return object, nil
	}
	organisation, refusal := h.organisation()
	if refusal != nil {
		return nil, refusal
	}
	object.Organisation = organisation
	object.Name = h.name("as-name")
	return object, nil
}
