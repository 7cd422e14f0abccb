FROM ruby:3.4-slim

RUN apt-get update && apt-get install -y --no-install-recommends build-essential libpq-dev && rm -rf /var/lib/apt/lists/*

ENV RACK_ENV=production RUBY_YJIT_ENABLE=1 BUNDLE_WITHOUT=development
ENV PGHOST=tfb-database PGDATABASE=hello_world PGUSER=benchmarkdbuser PGPASSWORD=benchmarkdbpass

WORKDIR /app
COPY Gemfile ./
RUN bundle install --jobs "$(nproc)"
COPY . .

EXPOSE 8080
CMD ["bundle", "exec", "fastrack", "-c", "fastrack.rb", "config.ru"]
