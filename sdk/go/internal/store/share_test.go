package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// compiled compiles the rules of a policy `a` that was taken over at an instant.
func compiled(t testing.TB, instant int64, rules ...kernel.Spec) *wire.CompiledRules {
	t.Helper()
	return wire.NewPolicyRules("a", testkit.Set(t, rules...), instant)
}

func FuzzReply(f *testing.F) {
	one := "\x01\x00" + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00", 3) + "\x00\x00\x00\x00" // of 27 bytes
	several := one + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00", 2)
	for _, seed := range []string{"\x00", "\x02", "\x03abc", "\x04rules", one, several} {
		f.Add(seed, 1, 0)
	}
	f.Add(several+"\x01\x00\x00\x00\x02\x00\x00\x00", 1, 2)
	set := testkit.Set(f, testkit.Named("a", testkit.Bucket(1, time.Second, 0)), testkit.Named("b", testkit.Bucket(9, time.Hour, 0)))
	f.Fuzz(func(t *testing.T, text string, v, debts int) {
		got, err := wire.DecodeReply(text, set, kernel.Verb(min(max(v, 1), 9)), min(max(debts, 0), 8))
		if err == nil && got.Kind <= wire.ReplyAllowed {
			for i, used := range (Answer{Verdict: got.Verdict, Set: set, decided: got.Decided, left: got.Left}).inUse(set) {
				if i < len(set.Rules) && (used < 0 || used > set.Rules[i].Limit()+1<<55) {
					t.Errorf("%q: %d are in use of rule %d", text, used, i)
				}
			}
		}
		_, _, _ = wire.ParseCallerHead([]byte(text))
		_, _ = kernel.ParseRules([]byte(text))
	})
}

func TestRefusalsAreRemembered(t *testing.T) {
	m, p := &Refusals{}, compiled(t, 1, testkit.Bucket(10, time.Second, 20))
	k := wire.PlaceOf("a", "k")
	refused := Answer{Verdict: kernel.Verdict{Retry: 100_000, ResetAfter: 2_000_000}, Set: p.Set}
	m.Keep(string(k[:]), p, 1, 1_000_000, refused)
	a, ok := m.Find(k, p, 1, 1_040_000)
	if !ok || a.Retry != 60_000 || a.ResetAfter != 1_960_000 {
		t.Fatalf("%+v", a)
	}
	if _, ok := m.Find(k, p, 2, 1_040_000); ok {
		t.Fatal("another cost")
	}
	if _, ok := m.Find(k, p, 1, 1_100_000); ok {
		t.Fatal("the retry has come")
	}
	refused.Retry = kernel.Never
	m.Keep(string(k[:]), p, 1, 1_000_000, refused)
	for now, want := range map[int64]bool{1_999_999: true, 999_999: false} {
		if _, ok := m.Find(k, p, 1, now); ok != want {
			t.Fatal(now)
		}
	}
	_, first := m.Find(k, p, 1, 2_000_000)
	_, second := m.Find(k, p, 1, 2_049_999)
	_, third := m.Find(k, p, 1, 2_050_000)
	if first || !second || third {
		t.Fatal("one asks again, others get the old refusal for 50 ms")
	}
}

func TestTheExampleOfTheLocalShare(t *testing.T) {
	s, p := NewShare(), compiled(t, 1, testkit.Bucket(100, time.Second, 50))
	at := kernel.Year2026US
	s.Learn("k", p, Answer{decided: 10, Set: p.Set}, at)
	for i, step := range []struct {
		ms, cost, remaining, retry, reset int64
		allowed                           bool
	}{
		{0, 1, 1, 0, 440_000, true}, {0, 1, 0, 0, 480_000, true}, {0, 1, 0, 20_000, 480_000, false},
		{0, 13, 0, 1_000_000, 480_000, false}, {0, 51, 0, kernel.Never, 480_000, false}, {20, 1, 0, 0, 500_000, true},
	} {
		q := Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: step.cost, Now: at + step.ms*1000}}
		a := s.Decide(q, 4)
		if a.Allowed != step.allowed || a.Remaining != step.remaining || a.Retry != step.retry ||
			a.ResetAfter != step.reset || a.Limit() != 12 {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if b, _ := s.DebtFor("k", p, at+20_000); b == nil || b.owed[0] != 3 {
		t.Errorf("%+v is owed, expected 3", b)
	}
}

func TestUsageUnderLaterRulesCountsForTheOwnRulesOfTheSameNames(t *testing.T) {
	own := testkit.Set(t, testkit.Named("a", testkit.Bucket(10, time.Second, 0)), testkit.Named("b", testkit.Window(100, time.Hour)), testkit.Named("c", testkit.Window(7, time.Minute)))
	for name, c := range map[string]struct {
		answer Answer
		want   [3]int64
	}{
		"the own rules": {Answer{Set: own, left: []int64{4, 99, 8}}, [3]int64{6, 1, 0}},
		"some of them": {Answer{left: []int64{150, 0, 20}, Set: testkit.Set(t, testkit.Named("b", testkit.Window(200, time.Hour)),
			testkit.Named("x", testkit.Bucket(5, time.Second, 0)), testkit.Named("a", testkit.Bucket(30, time.Second, 0)))}, [3]int64{10, 50, notReported}},
		"none of them": {Answer{Verdict: kernel.Verdict{Rule: 1}, decided: 2, left: []int64{1, 2},
			Set: testkit.Set(t, testkit.Named("x", testkit.Bucket(9, time.Second, 0)), testkit.Named("y", testkit.Bucket(5, time.Second, 0)))}, [3]int64{3, notReported, notReported}},
		"one of them":   {Answer{decided: 2, Set: testkit.Set(t, testkit.Named("c", testkit.Bucket(5, time.Second, 0)))}, [3]int64{notReported, notReported, 3}},
		"below 0":       {Answer{Set: own, left: []int64{-5, -2900, 7}}, [3]int64{15, 3000, 0}},
		"one below 0":   {Answer{decided: -2, Set: testkit.Set(t, testkit.Named("c", testkit.Window(5, time.Second)))}, [3]int64{notReported, notReported, 7}},
		"x below 0":     {Answer{decided: -2, Set: testkit.Set(t, testkit.Named("x", testkit.Window(5, time.Second)))}, [3]int64{7, notReported, notReported}},
		"another alone": {Answer{decided: 2, Set: testkit.Set(t, testkit.Named("x", testkit.Bucket(5, time.Second, 0)))}, [3]int64{3, notReported, notReported}},
	} {
		if got := c.answer.inUse(own); [3]int64(got[:3]) != c.want {
			t.Errorf("%s: %v, expected %v", name, got[:3], c.want)
		}
	}
}

// An answer that comes while a debt is on its way tells of permits that others took: they are no debt once it is paid.
func TestWhatOthersTookWhileADebtIsChargedIsNoDebt(t *testing.T) {
	p := compiled(t, 1, testkit.Named("hour", testkit.Window(100, time.Hour)), testkit.Named("day", testkit.Bucket(1000, 24*time.Hour, 0)))
	s, now := NewShare(), kernel.Year2026US
	q := Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 10, Now: now}}
	if a := s.Decide(q, 1); !a.Allowed {
		t.Fatal(a)
	}
	b, _ := s.DebtFor("k", p, now)
	if b == nil || b.owed[0] != 10 || b.owed[1] != 10 {
		t.Fatal(b)
	}
	s.Learn("k", p, Answer{Set: p.Set, left: []int64{70, 970}}, now)
	if s.Settle("k", b, p, Answer{Set: p.Set, Charged: []int64{10, 10}}, nil, now) {
		t.Error("the key owes what others took")
	}
	if used := s.accounts["k"].used.UsedOf(0, kernel.Moment{Now: now}); used != 40 {
		t.Errorf("%d are in use, expected 40", used)
	}
}

// Permits that the share admitted in a window count for its whole length, also when Redis has begun the next one: it hides no report of that.
func TestWhatCountsFromTheWindowBeforeHidesNoReport(t *testing.T) {
	day := kernel.Spec{Code: kernel.CodeFixedWindow, Limit: 40, Calendar: true, Zone: "UTC"}
	for name, c := range map[string]struct {
		rule   kernel.Spec
		window int64
	}{
		"hour": {testkit.Window(40, time.Hour), time.Hour.Microseconds()},
		"day":  {day, 24 * time.Hour.Microseconds()},
	} {
		p, window := compiled(t, 1, c.rule), c.window
		s, begin := NewShare(), kernel.Year2026US
		ask := func(now int64) int {
			passed := 0
			for range 50 {
				if s.Decide(Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1, Now: now}}, 1).Allowed {
					passed++
				}
			}
			return passed
		}
		if n := ask(begin); n != 40 {
			t.Fatalf("%s: %d passed", name, n)
		}
		paid := begin + window*9/10
		b, _ := s.DebtFor("k", p, paid)
		s.Settle("k", b, p, Answer{Set: p.Set, Charged: []int64{40}}, nil, paid)
		s.Learn("k", p, Answer{Set: p.Set, decided: 0}, paid)
		next := begin + window + window/20
		s.Learn("k", p, Answer{Set: p.Set, decided: 15}, next)
		if n := ask(next); n != 0 {
			t.Errorf("%s: %d passed while what the share admitted counts", name, n)
		}
		if n := ask(begin + window + window/5); n != 15 {
			t.Errorf("%s: %d passed in the window of which Redis has 25 of 40 in use", name, n)
		}
	}
}

// While a limit is lowered, Redis reports more than it. What was decided here before is raised all the way, and what is owed stays
// owed.
func TestAnAccountTakesOverWhatIsInUseAboveALoweredLimit(t *testing.T) {
	day := func(limit int64) *wire.CompiledRules {
		return compiled(t, 1, testkit.Named("day", testkit.Window(limit, 24*time.Hour)))
	}
	full, lowered, now := day(4000), day(50), kernel.Year2026US
	ask := func(s *Share, p *wire.CompiledRules, cost int64) bool {
		return s.Decide(Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: cost, Now: now}}, 1).Allowed
	}
	for name, c := range map[string]struct {
		left, charged, used, owed, later int64
	}{
		"above":            {-2950, 10, 3000, 0, 3000},
		"above, in debt":   {-2950, 0, 3010, 10, 3010},
		"used up":          {0, 10, 50, 0, 50},
		"used up, in debt": {0, 0, 50, 10, 60}, // there is no room for more before the limit rises
	} {
		s := NewShare()
		if !ask(s, full, 10) {
			t.Fatal(name)
		}
		b, _ := s.DebtFor("k", lowered, now)
		a := Answer{Set: lowered.Set, decided: c.left, Charged: []int64{c.charged}}
		s.Settle("k", b, lowered, a, nil, now)
		s.Learn("k", lowered, a, now)
		account, at := s.accounts["k"], lowered.MomentsAt(now)
		if used := account.used.UsedOf(0, at[0]); used != c.used {
			t.Errorf("%s: %d are in use, expected %d", name, used, c.used)
		}
		if owed, _ := account.owed(at); owed[0] != c.owed {
			t.Errorf("%s: %d are owed, expected %d", name, owed[0], c.owed)
		}
		if ask(s, lowered, 1) || ask(s, full, 4001-c.later) || !ask(s, full, 4000-c.later) {
			t.Errorf("%s: not 4000 in all", name)
		}
	}
}

// A request that carries a debt and is still under way may charge it after another one charged nothing: so the next
// charge has the same id, under which Redis charges once.
func TestADebtOfWhichNothingWasChargedKeepsItsID(t *testing.T) {
	p := compiled(t, 1, testkit.Named("hour", testkit.Window(100, time.Hour)))
	s, now := NewShare(), kernel.Year2026US
	s.Decide(Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 10, Now: now}}, 1)
	first, _ := s.DebtFor("k", p, now)
	for _, c := range []struct {
		charged int64
		same    bool
	}{{0, true}, {0, true}, {4, false}} {
		b, _ := s.DebtFor("k", p, now)
		if !s.Settle("k", b, p, Answer{Set: p.Set, Charged: []int64{c.charged}}, nil, now) {
			t.Fatal("it owes the rest")
		}
		next, _ := s.DebtFor("k", p, now)
		if same := next.id == first.id; same != c.same || next.owed[0] != 10-c.charged {
			t.Errorf("charged %d: the same id: %v, owed %d", c.charged, same, next.owed[0])
		}
	}
}

// A charge that Redis perhaps made has one number for each rule, by its place and in permits of then.
func TestADebtDoesNotSurviveAnEditByWhichItsNumbersMeanSomethingElse(t *testing.T) {
	rules := func(carry kernel.Carry, specs ...kernel.Spec) *wire.CompiledRules {
		return wire.NewPolicyRules("a", kernel.NewRuleSet(testkit.Set(t, specs...).Rules, carry), 1)
	}
	day := func(name string, limit int64) kernel.Spec {
		return testkit.Named(name, testkit.Window(limit, 24*time.Hour))
	}
	bucket := func(name string) kernel.Spec { return testkit.Named(name, testkit.Bucket(1000, time.Second, 1000)) }
	now := kernel.Year2026US
	for name, c := range map[string]struct {
		carry  kernel.Carry // of the rules before
		edited *wire.CompiledRules
		same   bool
		owed   []int64
		inUse  []int64
	}{
		"swapped":      {kernel.CarryUsage, rules(kernel.CarryUsage, bucket("b"), day("a", 4000)), false, []int64{50, 100}, []int64{50, 100}},
		"renamed":      {kernel.CarryUsage, rules(kernel.CarryUsage, day("a", 4000), bucket("c")), false, []int64{100, 0}, []int64{100, 0}},
		"one less":     {kernel.CarryUsage, rules(kernel.CarryUsage, day("a", 4000)), false, []int64{100}, []int64{100}},
		"raised":       {kernel.CarryUsage, rules(kernel.CarryUsage, day("a", 8000), bucket("b")), true, []int64{100, 100}, []int64{100, 50}},
		"proportional": {kernel.CarryUsage, rules(kernel.CarryProportional, day("a", 8000), bucket("b")), false, []int64{200, 50}, []int64{200, 50}},
		"made again":   {kernel.CarryReset, rules(kernel.CarryReset, day("a", 4000), bucket("b")), true, []int64{100, 100}, []int64{100, 50}},
	} {
		s, before := NewShare(), rules(c.carry, day("a", 4000), bucket("b"))
		s.Decide(Request{Rules: before, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 100, Now: now}}, 1)
		first, _ := s.DebtFor("k", before, now)
		if !s.Settle("k", first, before, Answer{}, &wire.Failure{Charged: true}, now) {
			t.Fatal(name)
		}
		// Half of the bucket's flows out.
		next, alone := s.DebtFor("k", c.edited, now+50_000)
		if same := next.id == first.id; same != c.same || alone || !slices.Equal(next.owed, c.owed) {
			t.Errorf("%s: the same id: %v, owed %v, alone %v", name, same, next.owed, alone)
		}
		if s.Settle("k", next, c.edited, Answer{Set: c.edited.Set, Charged: next.owed}, nil, now+50_000) {
			t.Errorf("%s: it owes what was charged", name)
		}
		for i, at := range c.edited.MomentsAt(now + 50_000) {
			stored, used := s.accounts["k"].stored.UsedOf(i, at), s.accounts["k"].used.UsedOf(i, at)
			if stored != c.inUse[i] || used != c.inUse[i] {
				t.Errorf("%s: %d of rule %d are stored and %d used, expected %d", name, stored, i, used, c.inUse[i])
			}
		}
	}
}

// A request under earlier rules whose charge was dropped meanwhile changes nothing when it ends.
func TestADroppedDebtIsSettledWithoutEffect(t *testing.T) {
	one := compiled(t, 1, testkit.Named("a", testkit.Window(100, time.Hour)))
	two := compiled(t, 2, testkit.Named("a", testkit.Window(100, time.Hour)), testkit.Named("b", testkit.Window(100, time.Hour)))
	for _, f := range []*wire.Failure{nil, {Charged: true}, {}} {
		s, now := NewShare(), kernel.Year2026US
		ask := func(p *wire.CompiledRules) {
			s.Decide(Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 10, Now: now}}, 1)
		}
		ask(one)
		first, _ := s.DebtFor("k", one, now)
		ask(two)
		if s.Settle("k", first, one, Answer{Set: one.Set, Charged: []int64{10}}, f, now); s.accounts["k"].debt != nil {
			t.Error("the charge is still there")
		}
		if next, _ := s.DebtFor("k", two, now); next.id == first.id || !slices.Equal(next.owed, []int64{20, 10}) {
			t.Errorf("%+v comes after %+v", next, first)
		}
	}
}

// The known usage of each rule holds for two seconds against an answer that reports less, whatever the others report.
func TestAnOlderAnswerTakesNothingBackOfAnyRule(t *testing.T) {
	p := compiled(t, 1, testkit.Named("hour", testkit.Window(100, time.Hour)), testkit.Named("day", testkit.Window(1000, 24*time.Hour)))
	s, now := NewShare(), kernel.Year2026US
	learn := func(at, hour, day int64) [2]int64 {
		s.Learn("k", p, Answer{Set: p.Set, left: []int64{100 - hour, 1000 - day}}, at)
		n := s.reported["k"]
		return [2]int64{n.UsedOf(0, kernel.Moment{Now: at}), n.UsedOf(1, kernel.Moment{Now: at})}
	}
	for i, c := range []struct{ at, hour, day, wantHour, wantDay int64 }{
		{0, 50, 50, 50, 50},
		{1_000_000, 40, 60, 50, 60},
		{1_999_999, 40, 40, 50, 60},
		{2_000_000, 40, 40, 40, 60},
		{1_500_000, 30, 30, 40, 60},
		{3_000_000, 30, 30, 30, 30},
	} {
		if got := learn(now+c.at, c.hour, c.day); got != [2]int64{c.wantHour, c.wantDay} {
			t.Errorf("%d: %v, expected %d, %d", i, got, c.wantHour, c.wantDay)
		}
	}
}

func TestADebtUnderLaterRulesIsChargedInFullAndPaidByTheLeast(t *testing.T) {
	own := testkit.Set(t, testkit.Named("a", testkit.Window(9, time.Hour)), testkit.Named("b", testkit.Window(9, time.Hour)))
	later := testkit.Set(t, testkit.Named("x", testkit.Window(9, time.Hour)), testkit.Named("y", testkit.Window(9, time.Hour)),
		testkit.Named("z", testkit.Window(9, time.Hour)))
	debt := &DebtCharge{owed: []int64{3, 7}}
	if got := debt.owedBy(own, later); !slices.Equal(got, []int64{7, 7, 7}) {
		t.Errorf("%v is owed, expected 7 of each rule", got)
	}
	if got := debt.chargedOf(own, later, []int64{7, 5, 7}); !slices.Equal(got, []int64{3, 5}) {
		t.Errorf("%v is paid, expected 3 and 5", got)
	}
}
