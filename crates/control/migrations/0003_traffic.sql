-- What nodes counted: one row for each node and bucket in which it decided something. `step` is the length
-- of a bucket in milliseconds, `body` is packed (`src/traffic/codec.rs`). Rows are not under the lock of
-- `head`, and are deleted by age.
CREATE TABLE traffic (
  step BIGINT NOT NULL,
  at BIGINT NOT NULL,
  node VARCHAR(128) NOT NULL,
  body {bytes} NOT NULL,
  PRIMARY KEY (step, at, node)
) {options};

-- How each node does, as JSON, written with its row of `nodes`.
CREATE TABLE node_reports (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  body {long} NOT NULL
) {options};
