package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/jobshaper/jobshaper/workers/target"
)

// ffmpegCommand transcodes one file, as cheaply as ffmpeg can: 160 pixels wide, encoders that every
// build has, one thread. farm.yaml has the same command.
var ffmpegCommand = []string{
	"ffmpeg", "-v", "error", "-nostdin", "-y", "-threads", "1", "-i", "file:{payload.input}",
	"-vf", "scale=160:-2", "-c:v", "mpeg4", "-q:v", "6", "-c:a", "aac", "-b:a", "48k", "-threads", "1",
	"-f", "mp4", "file:{payload.output}",
}

// ffmpegTool turns camera-like clips (Motion JPEG and PCM) into small MPEG-4 ones. Its handler is
// the exec target, which runs a command for each job, gives its stderr to the job's error, and ends
// its process group at the job's timeout.
func ffmpegTool() (tool, error) {
	path, err := exec.LookPath(ffmpegCommand[0])
	if err != nil {
		return tool{}, err
	}
	handler, err := target.NewExec(target.ExecConfig{Argv: ffmpegCommand})
	if err != nil {
		return tool{}, err
	}
	return tool{
		about:    ".mov (Motion JPEG, PCM) to smaller .mp4 (MPEG-4, AAC), with ffmpeg",
		inputExt: ".mov", outputExt: ".mp4",
		handler: handler,
		make:    func(ctx context.Context, clips []source) error { return makeClips(ctx, path, clips) },
		check:   func(ctx context.Context, clips []string) error { return checkClips(ctx, path, clips) },
	}, nil
}

// makeClips makes test pictures with a tone, of 1 to 2 s. Picture, size, length and pitch vary.
func makeClips(ctx context.Context, ffmpeg string, clips []source) error {
	pictures := []string{"testsrc2", "testsrc", "smptebars"}
	sizes := []string{"320x180", "240x180", "320x240", "256x256"}
	args := []string{"-v", "error", "-nostdin", "-y"}
	for _, c := range clips {
		seconds := 1 + float64(c.n%5)/4
		args = append(args,
			"-f", "lavfi", "-i", fmt.Sprintf("%s=size=%s:rate=10:duration=%g", pictures[c.n%3], sizes[c.n%4], seconds),
			"-f", "lavfi", "-i", fmt.Sprintf("sine=frequency=%d:sample_rate=22050:duration=%g", 220+20*(c.n%20), seconds))
	}
	for i, c := range clips {
		args = append(args, "-map", fmt.Sprintf("%d:v", 2*i), "-map", fmt.Sprintf("%d:a", 2*i+1),
			"-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-q:v", "8", "-c:a", "pcm_s16le", "-threads", "1", "-f", "mov", "file:"+c.path)
	}
	_, err := output(ctx, ffmpeg, args...)
	return err
}

// checkClips decodes clips, each of which must have picture and sound. ffmpeg's framecrc prints a
// line for each decoded frame, which begins with the number of its stream.
func checkClips(ctx context.Context, ffmpeg string, clips []string) error {
	args := []string{"-v", "error", "-xerror", "-nostdin"}
	for _, clip := range clips {
		args = append(args, "-threads", "1", "-i", "file:"+clip)
	}
	for i := range clips {
		args = append(args, "-map", fmt.Sprintf("%d:v:0", i), "-map", fmt.Sprintf("%d:a:0", i))
	}
	frames, err := output(ctx, ffmpeg, append(args, "-f", "framecrc", "-")...)
	if err != nil {
		return err
	}
	for i, clip := range clips {
		for stream, kind := range []string{"picture", "sound"} {
			if !strings.Contains(frames, fmt.Sprintf("\n%d, ", 2*i+stream)) {
				return fmt.Errorf("%s: no %s in it", clip, kind)
			}
		}
	}
	return nil
}

// output runs a command and returns what it writes. An error has what the command wrote to stderr;
// ffmpeg, which is told to be quiet, writes there only what went wrong.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
