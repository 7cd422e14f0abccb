CREATE TABLE posts (
  id integer PRIMARY KEY, title text NOT NULL, body text NOT NULL, author text NOT NULL, comments_count integer NOT NULL,
  published_at timestamp NOT NULL
);

INSERT INTO posts
SELECT n, 'Post number ' || n, repeat('Lorem ipsum dolor sit amet & consectetur adipiscing elit. ', 2 + n % 5),
       'Author ' || n % 7, n * 13 % 40, timestamp '2026-01-01' + n * interval '7 hours'
FROM generate_series(1, 500) n;

CREATE TABLE items (
  id integer PRIMARY KEY, name text NOT NULL, category text NOT NULL, price integer NOT NULL, quantity integer NOT NULL,
  active boolean NOT NULL, tags jsonb NOT NULL, rating_score integer NOT NULL, rating_count integer NOT NULL
);

INSERT INTO items
SELECT n, 'Item ' || n, 'category ' || n % 9, 1 + n * 7919 % 500, 1 + n * 104729 % 1000, n % 2 = 0,
       to_jsonb(ARRAY['tag ' || n % 5, 'tag ' || n % 11]), 1 + n * 31 % 50, 1 + n * 17 % 500
FROM generate_series(1::bigint, 100000) n;

-- As TechEmpower has them. Updated rows find room on their page: nobody vacuums.
CREATE TABLE world (id integer PRIMARY KEY, randomnumber integer NOT NULL) WITH (fillfactor = 50);

INSERT INTO world SELECT n, 1 + n * 7919 % 10000 FROM generate_series(1, 10000) n;

CREATE TABLE fortune (id integer PRIMARY KEY, message text NOT NULL);

INSERT INTO fortune
SELECT n, CASE n WHEN 11 THEN '<script>alert("This is data, not a script.");</script>' WHEN 12 THEN 'Größe' ELSE 'A saying, which is no. ' || n || '; it isn''t long' END
FROM generate_series(1, 12) n;

ANALYZE;

