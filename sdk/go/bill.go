package sluicegate

import (
	"crypto/rand"
	"encoding/base64"
)

// bill is a debt on its way: so many permits of each rule, under an id that stays the same however often it is sent.
type bill struct {
	id    string
	owed  []int64
	upTo  life // what was in use here when the bill was made
	users int  // requests that carry it now
	doubt bool // perhaps charged
}

// newBillID makes an id. It is that of all bills of a key until something was charged under it: Redis does not remember
// an id of which it charged nothing, and a request that carries it and is still under way may charge it later.
func newBillID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// owedBy gives what each of the deciding rules is charged: of later rules, each the most that any rule owes.
func (b *bill) owedBy(own, deciding *ruleSet) []int64 {
	if b == nil || own == deciding {
		if b == nil {
			return nil
		}
		return b.owed
	}
	most := int64(0)
	for _, owed := range b.owed {
		most = max(most, owed)
	}
	out := make([]int64, len(deciding.rules))
	for i := range out {
		out[i] = most
	}
	return out
}

// chargedOf gives what each of the own rules has paid: of later rules, the least that one of them was charged.
func (b *bill) chargedOf(own, deciding *ruleSet, charged []int64) []int64 {
	if b == nil || own == deciding {
		return charged
	}
	least := charged[0]
	for _, c := range charged {
		least = min(least, c)
	}
	out := make([]int64, len(own.rules))
	for i := range out {
		out[i] = min(least, b.owed[i])
	}
	return out
}
