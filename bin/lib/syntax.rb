# frozen_string_literal: true

# Compiles Ruby files without running them, as `ruby -wc` does, all in one process: syntax.rb FILE...
# Exits with 1 when one has a syntax error, or when Ruby warns about one.

warnings = []
Warning.define_singleton_method(:warn) { |message, **| warnings << message }
$VERBOSE = true

ARGV.each do |file|
  RubyVM::InstructionSequence.compile_file(file)
rescue SyntaxError => error
  warnings << "#{error.message}\n"
end

puts "#{ARGV.size} Ruby files, #{warnings.size} with a syntax error or warning", warnings
exit(warnings.empty? && ARGV.any?)
