package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

func TestRequestsThatAreCalledAreReadAsTheyAreWritten(t *testing.T) {
	called := []kernel.Called{{Permit: kernel.PermitOf("a"), Process: kernel.ProcessID{1, 2, 3, 4, 5, 6, 7, 8}}, {Permit: kernel.PermitOf("b"), Process: kernel.ProcessID{8}}}
	if got, ok := ReadCalled(string(CalledBytes(called))); !ok || !slices.Equal(got, called) {
		t.Errorf("%v", got)
	}
	if got, ok := ReadCalled("not a multiple of 24"); ok || got != nil {
		t.Errorf("%v", got)
	}
}

func TestAWaitNamesItsPermitAndItsProcess(t *testing.T) {
	r := kernel.Request{Cost: 3, Permit: kernel.PermitOf("a"), Process: kernel.ProcessID{1, 2, 3, 4, 5, 6, 7, 8}}
	for verb, code := range map[kernel.Verb]byte{kernel.VerbWait: 14, kernel.VerbLeave: 15} {
		r.Verb = verb
		want := slices.Concat([]byte{code, 0, 3, 0, 0, 0}, r.Permit[:], r.Process[:])
		if got := EncodeRequest(ClockServer, r, StateWriter{}); !bytes.Equal(got, want) {
			t.Errorf("%x, expected %x", got, want)
		}
	}
}
