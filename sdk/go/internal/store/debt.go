package store

import (
	"slices"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// DebtCharge is a debt on its way: so many permits of each rule, under an id that stays the same however often it is sent. It is
// the id of all charges of a key until something was charged under it: Redis does not remember an id of which it charged
// nothing, and a request that carries it and is still under way may charge it later.
type DebtCharge struct {
	id             string
	owed           []int64
	usedThen       kernel.KeyState // what was in use here when the charge was made
	carriers       int             // requests that carry it now
	perhapsCharged bool            // perhaps charged
}

// owedBy returns what each of the deciding rules is charged: of later rules, each the most that any rule owes.
func (debt *DebtCharge) owedBy(own, deciding *kernel.RuleSet) []int64 {
	switch {
	case debt == nil:
		return nil
	case own == deciding:
		return debt.owed
	default:
		return slices.Repeat([]int64{slices.Max(debt.owed)}, len(deciding.Rules))
	}
}

// chargedOf returns what each of the own rules has paid: of later rules, the least that one of them was charged.
func (debt *DebtCharge) chargedOf(own, deciding *kernel.RuleSet, charged []int64) []int64 {
	if debt == nil || own == deciding {
		return charged
	}
	least, out := slices.Min(charged), slices.Clone(debt.owed)
	for i := range out {
		out[i] = min(least, out[i])
	}
	return out
}
