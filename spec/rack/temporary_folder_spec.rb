# frozen_string_literal: true

RSpec.describe "A12 The folder for temporary files", once: "folders and mounts" do
  include KeptHelpers

  app = <<~'RUBY'
    run(lambda { |env|
      input = env["rack.input"]
      size = input.read.bytesize
      copies = [input.dup, input.clone].map { |copy| copy.tap(&:rewind).read.bytesize } if input.is_a?(Tempfile)
      [200, {}, [[input.class, size, copies].inspect]]
    })
  RUBY

  # Whether nothing but these commands is different for the server: the shell has its directory as $0.
  def mounted(*commands)
    skip "mounts take root's rights" unless system("unshare", "-m", "true", err: File::NULL)
    aside = ['mount --bind "$PWD" /mnt', "mount -t tmpfs -o mode=0777 tmpfs /tmp", 'mkdir -p "$PWD"', 'mount --bind /mnt "$PWD"', 'cd "$PWD"']
    ["unshare", "-m", "sh", "-c", "#{[*aside, *commands].join(" && ")} && exec \"$@\"", "sh"]
  end

  def nowhere = mounted("mount -o remount,ro /tmp", "mount -t tmpfs -o ro tmpfs /var/tmp")
  def upload = peer.ask("/", verb: "POST", body: "x" * 2_000_000).answer

  it "may be one that everybody may write to, without a sticky bit, where there is no other (emptyDir of Kubernetes)" do
    # Ruby's Dir.tmpdir would take the current directory.
    serve(app, wrapper: mounted("mount -t tmpfs -o ro tmpfs /var/tmp", 'mount -o remount,ro,bind "$PWD"'))
    expect(upload.body).to eq("[Tempfile, 2000000, [2000000, 2000000]]")
  end

  it "may be missing: what needs a file is refused, and logged; all else is served" do
    serve(app, wrapper: nowhere)
    expect(upload.status).to eq(503)
    expect(server.get.status).to eq(200)
    eventually { server.log.match?(%r{cannot keep a request's body of 2000000 bytes in /tmp: is there room, and leave\?}) }
  end

  it "is missed by `fastrack check`" do
    Dir.mktmpdir do |folder|
      File.write("#{folder}/config.ru", app)
      command = [*nowhere, RbConfig.ruby, "-w", Server::COMMAND, "check"]
      output, status = Open3.capture2e({ **Server::CLEAN_ENVIRONMENT, "PWD" => folder }, *command, chdir: folder)
      expect(output).to include("no folder for temporary files (/tmp, /var/tmp) can be written to: request bodies over 1 MiB get 503")
      expect(status.exitstatus).to eq(0)
    end
  end

  it "is made if the variable names one that is missing" do
    Dir.mktmpdir do |top|
      serve(app, env: { "TMPDIR" => File.join(top, "app") })
      server.await_ready
      expect(File.stat(File.join(top, "app")).mode & 0o777).to eq(0o700)
    end
  end

  it "is made again when it was removed, and replaced where that cannot be" do
    Dir.mktmpdir do |top|
      folder = File.join(top, "tmp").tap { |path| Dir.mkdir(path) }
      serve(app, env: { "TMPDIR" => folder })
      server.await_ready
      Dir.rmdir(folder)
      expect([upload.status, Dir.exist?(folder)]).to eq([200, true])
      Dir.rmdir(folder)
      File.write(folder, "")
      expect(upload.status).to eq(200)
    end
  end
end
