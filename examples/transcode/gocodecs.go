package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"

	"github.com/hibiken/asynq"
)

// goTool turns PNG stills into JPEG ones of half their size, with Go's own codecs. why tells the
// user why it was chosen.
func goTool(why string) tool {
	return tool{
		about:    "PNG to JPEG of half the size, with Go's own codecs (" + why + ")",
		inputExt: ".png", outputExt: ".jpg",
		handler: asynq.HandlerFunc(transcodeStill),
		make:    makeStills,
		check:   checkStills,
	}
}

// transcodeStill is the handler: an ordinary one, as asynq has them. What it returns decides what
// becomes of the job: with nil the job is done; with an error it comes back through its bucket;
// with asynq.SkipRetry it is dead. A job may run again after a crash, so the handler writes the
// same file each time.
func transcodeStill(_ context.Context, task *asynq.Task) error {
	var job struct{ Input, Output string }
	if err := json.Unmarshal(task.Payload(), &job); err != nil {
		return fmt.Errorf("payload: %w: %w", err, asynq.SkipRetry)
	}
	in, err := os.Open(job.Input)
	if err != nil {
		return err
	}
	defer in.Close()
	still, err := png.Decode(in)
	if err != nil {
		return fmt.Errorf("decode %s: %w: %w", job.Input, err, asynq.SkipRetry)
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, half(still), &jpeg.Options{Quality: 80}); err != nil {
		return err
	}
	return os.WriteFile(job.Output, out.Bytes(), 0o666)
}

// half returns src at half its width and height; each pixel is the mean of four.
func half(src image.Image) image.Image {
	b := src.Bounds()
	dst := image.NewRGBA(image.Rect(0, 0, b.Dx()/2, b.Dy()/2))
	for y := range b.Dy() / 2 {
		for x := range b.Dx() / 2 {
			var red, green, blue uint32
			for i := range 4 {
				r, g, b, _ := src.At(b.Min.X+2*x+i%2, b.Min.Y+2*y+i/2).RGBA() // 16 bits each
				red, green, blue = red+r, green+g, blue+b
			}
			dst.SetRGBA(x, y, color.RGBA{uint8(red >> 10), uint8(green >> 10), uint8(blue >> 10), 255})
		}
	}
	return dst
}

func makeStills(ctx context.Context, stills []source) error {
	for _, s := range stills {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := makeStill(s.path, s.n); err != nil {
			return err
		}
	}
	return nil
}

// makeStill draws rings on a gradient. Size, centre and colours vary with n.
func makeStill(path string, n int) error {
	w, h := 240+80*(n%3), 180+60*(n%3)
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			dx, dy := x-(37*n)%w, y-(23*n)%h
			ring := uint8((dx*dx + dy*dy) / 64)
			img.SetRGBA(x, y, color.RGBA{uint8(255 * x / w), ring, uint8(255*y/h) + uint8(40*n), 255})
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, img); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o666)
}

func checkStills(_ context.Context, stills []string) error {
	for _, path := range stills {
		if err := checkStill(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func checkStill(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = jpeg.Decode(f)
	return err
}
