// Package tz brings the IANA database of time zones along, for programs that limit by calendar windows where the machine
// has no such database: `import _ "github.com/sluicegate/sluicegate/sdk/go/tz"`.
package tz

import _ "time/tzdata" // the database itself
