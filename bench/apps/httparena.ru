# frozen_string_literal: true

# The entry for HttpArena, with a data set of this size and shape.
require_relative "profiles_data"

ENV["DATASET"] = File.join(ENV.fetch("BENCH_DIR"), "dataset.json").tap { |file| File.write(file, JSON.generate(ProfileData::ITEMS)) }
instance_eval(File.read(File.expand_path("../httparena/rack-fastrack/config.ru", __dir__)))
